"""How JVMs of tests run: they live for seconds or minutes, several on two cores.

A third of the CPU of a whole run: most of a JVM's time goes into code that runs too seldom to be worth the second
compiler, into garbage collectors that are made for more cores than two, and into checking the byte code of 28,000
classes, which pip has checked by their hash. With the first compiler alone, room for code is so little that it is swept.
"""

from __future__ import annotations

JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:ReservedCodeCacheSize=240m "
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
