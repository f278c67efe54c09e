"""Small files beside a checkpoint or an output, on whatever file system Spark reaches."""

from __future__ import annotations

import json
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ..problems import Problem


class Folder:
    """A folder by its path or URI, through Hadoop's file systems."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.path = path
        # pyspark has no other way to Hadoop's file systems.
        jvm: Any = spark._jvm
        configuration = spark._jsc.hadoopConfiguration()
        self._jvm = jvm
        try:
            self._root = jvm.org.apache.hadoop.fs.Path(path)
            self._files = self._root.getFileSystem(configuration)
        except Py4JJavaError as error:
            raise Problem(f"{path} is no folder: {error.java_exception.getMessage()}") from error

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def read(self, name: str) -> str | None:
        """The text of a file, or None where there is none."""
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A file that holds one JSON object, or None where there is none."""
        text = self.read(name)
        if text is None:
            return None
        try:
            tree: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise Problem(f"{self.path}/{name} is damaged: {error}") from error
        return tree

    def write_json(self, name: str, tree: dict[str, Any]) -> None:
        """Write a small file whole or not at all: under another name first."""
        target, draft = self._path(name), self._path(f".{name}.new")
        self._files.mkdirs(self._root)
        stream = self._files.create(draft, True)
        try:
            stream.write(bytearray(json.dumps(tree, indent=1, sort_keys=True).encode()))
        finally:
            stream.close()
        self._files.delete(target, False)
        if not self._files.rename(draft, target):
            raise Problem(f"cannot write {self.path}/{name}")

    def is_empty(self) -> bool:
        """Whether nothing is in it, or it is not there."""
        return not self._files.exists(self._root) or not len(self._files.listStatus(self._root))

    def remove_staging(self) -> None:
        """Delete what Spark staged for partitions and did not get to move into place."""
        found = self._files.globStatus(self._path(".spark-staging-*")) or []
        for status in found:
            self._files.delete(status.getPath(), True)
