"""From specs to operators: names found, types checked, time marks handed on."""
