"""The jars of a Kafka broker and of Spark's connector, fetched by Ivy, as `spark.jars.packages` does, into its cache.

Users of a cluster name the connector of their version of Spark in `spark.jars.packages` (docs/how-to/kafka.md). This
module is for the example, tests and benchmarks, which also need a broker, and must run where the connector of the
newest Spark, or a part of it, is not published: the versions below are known to work together with Spark 4.3.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

CACHE = Path.home() / ".ivy2.5.2"  # Spark's own, so that nothing is fetched twice


@dataclass(frozen=True)
class Package:
    """One module of Maven; with `alone` nothing that it depends on is fetched."""

    organisation: str
    name: str
    version: str
    alone: bool = False

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}"


BROKER = (Package("org.apache.kafka", "kafka_2.13", "4.3.1"),)
CONNECTOR = (
    Package("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", alone=True),
    Package("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", alone=True),
    Package("org.apache.kafka", "kafka-clients", "3.9.2", alone=True),
    Package("org.apache.commons", "commons-pool2", "2.12.1", alone=True),
)
AVRO = (Package("org.apache.spark", "spark-avro_2.13", "4.1.1", alone=True),)


class JarsMissing(Exception):
    """Jars that are neither in Ivy's cache nor can be fetched."""


def fetch(packages: tuple[Package, ...], folder: Path) -> list[Path]:
    """Return the jars of packages, copied into a folder; the network is asked only for what the cache lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    description = folder / "ivy.xml"
    description.write_text(_describe(packages))
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = ["java", "-cp", str(ivy), "org.apache.ivy.Main", "-cache", str(CACHE / "cache"), "-ivy", str(description)]
    command += ["-types", "jar", "bundle", "-retrieve", str(folder / "[artifact]-[revision].[ext]")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lacking = sorted(set(re.findall(r"^\s*::\s+(\S+?#\S+?;[^\s:!]+)[:!]", done.stdout, re.MULTILINE)))
    jars = sorted(folder.glob("*.jar"))
    if done.returncode or lacking or not jars:
        names = ", ".join(re.sub("[#;]", ":", name) for name in lacking) or ", ".join(map(str, packages))
        raise JarsMissing(
            f"cannot fetch {names}; with a network they come from Maven, without one copy {CACHE} from a machine that "
            "has them"
        )
    return jars


def _describe(packages: tuple[Package, ...]) -> str:
    """Return what Ivy is to fetch: the runtime dependencies of each package, or the package alone."""
    lines = [
        f"<dependency org={quoteattr(p.organisation)} name={quoteattr(p.name)} rev={quoteattr(p.version)} "
        f'conf="default->{"master" if p.alone else "runtime,master"}" transitive="{str(not p.alone).lower()}"/>'
        for p in packages
    ]
    return (
        '<ivy-module version="2.0"><info organisation="braided" module="example"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )
