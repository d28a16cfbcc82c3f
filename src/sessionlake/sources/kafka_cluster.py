"""A Kafka cluster's administration: whether it answers, how it keeps a topic, and sending records to a topic."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sessionlake.config.secrets import reveal, reveal_all
from sessionlake.errors import SourceError, UnreachableError
from sessionlake.warehouse import spark_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMEOUT_MS = 15_000
_CONNECT_S = 5.0
_PREFIX = "kafka."
_MISSING = "UnknownTopicOrPartition"
_REFUSED = ("AuthorizationException", "AuthenticationException")
_LOST = ("KAFKA_DATA_LOSS", "may have been lost because they are not available in Kafka", "OffsetOutOfRange")
_SILENT = (
    "kafka.common.errors.TimeoutException",
    "kafka.common.errors.DisconnectException",
    "Timed out waiting for a node assignment",
    "Cannot fetch record for offset",
    "No resolvable bootstrap urls",
)


@dataclass(frozen=True)
class Topic:
    """A topic as the cluster describes it."""

    id: str
    """The topic's id, which changes if a topic of this name is recreated."""
    cleanup_policy: str
    """Empty if this user may not see it."""

    @property
    def compacted(self) -> bool:
        """Whether Kafka removes records that have a newer record of the same key."""
        return "compact" in self.cleanup_policy


@dataclass(frozen=True)
class Cluster:
    """A Kafka cluster as a section of the config names it, secrets as references: their values are looked up for each use."""

    section: str
    bootstrap_servers: str
    options: Mapping[str, str]

    @property
    def servers(self) -> str:
        """The bootstrap servers; ConfigError if a reference in them has no value."""
        return reveal(f"{self.section}.bootstrap_servers", self.bootstrap_servers)

    @property
    def client_options(self) -> dict[str, str]:
        """Options of Kafka's own client, with the prefix for Spark's connector."""
        given = {name: value for name, value in self.options.items() if name.startswith(_PREFIX)}
        return reveal_all(f"{self.section}.options", given)

    def require_reachable(self) -> None:
        """Raise UnreachableError if no bootstrap server takes a connection; Kafka's client would log for a while first."""
        failures = []
        for server in self.servers.split(","):
            host, _, port = server.strip().rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
            except (OSError, ValueError) as error:
                failures.append(str(error))
            else:
                return
        raise UnreachableError(
            f"{self.section}.bootstrap_servers: {self.bootstrap_servers!r} does not answer ({failures[0]}); "
            "start the broker or correct host:port"
        )

    def describe(self, spark: "SparkSession", topic: str) -> "Topic":
        """Return a topic's properties; MissingTopicError if there is no such topic."""
        return self.described(spark, [topic])[topic]

    def described(self, spark: "SparkSession", topics: Sequence[str]) -> "dict[str, Topic]":
        """Return the properties of topics; MissingTopicError if one does not exist."""
        self.require_reachable()
        jvm: Any = spark._jvm
        kinds = getattr(jvm, "org.apache.kafka.common.config.ConfigResource$Type")
        found = {}
        with self._admin(jvm) as admin:
            futures = admin.describeTopics(jvm.java.util.List.copyOf(topics)).topicNameValues()
            for topic in topics:
                try:
                    described = futures.get(topic).get()
                except spark_names.Py4JJavaError as error:
                    raise self._explained(topic, str(error.java_exception)) from error
                resource = jvm.org.apache.kafka.common.config.ConfigResource(kinds.TOPIC, topic)
                try:
                    settings = admin.describeConfigs(jvm.java.util.List.of(resource)).all().get().get(resource)
                    policy = str(settings.get("cleanup.policy").value())
                except spark_names.Py4JJavaError:
                    policy = ""
                found[topic] = Topic(described.topicId().toString(), policy)
        return found

    def topics(self, spark: "SparkSession") -> list[str]:
        """Return all topics that this user may see."""
        self.require_reachable()
        with self._admin(spark._jvm) as admin:
            try:
                return [*admin.listTopics().names().get()]
            except spark_names.Py4JJavaError as error:
                raise self._explained("", str(error.java_exception)) from error

    def create(self, spark: "SparkSession", topic: str, settings: Mapping[str, str]) -> None:
        """Create a topic with these settings, and the cluster's own default of partitions and replicas."""
        jvm: Any = spark._jvm
        with self._admin(jvm) as admin:
            default = jvm.java.util.Optional.empty()
            new = jvm.org.apache.kafka.clients.admin.NewTopic(topic, default, default)
            configs = jvm.java.util.HashMap()
            for name, value in settings.items():
                configs.put(name, value)
            try:
                admin.createTopics(jvm.java.util.List.of(new.configs(configs))).all().get()
            except spark_names.Py4JJavaError as error:
                if "TopicExistsException" not in str(error.java_exception):
                    raise self._explained(topic, str(error.java_exception)) from error

    def end_offsets(self, spark: "SparkSession", topic: str) -> dict[int, int]:
        """Return by partition the topic's next offset; SourceError if it can't be learnt."""
        jvm: Any = spark._jvm
        with self._admin(jvm) as admin:
            try:
                described = admin.describeTopics(jvm.java.util.List.of(topic)).allTopicNames().get().get(topic)
                latest, wanted = jvm.org.apache.kafka.clients.admin.OffsetSpec.latest(), jvm.java.util.HashMap()
                for partition in described.partitions():
                    wanted.put(jvm.org.apache.kafka.common.TopicPartition(topic, partition.partition()), latest)
                offsets = admin.listOffsets(wanted).all().get()
            except spark_names.Py4JJavaError as error:
                raise self._explained(topic, str(error.java_exception)) from error
            return {place.partition(): offsets.get(place).offset() for place in wanted.keySet()}

    def write(self, records: "DataFrame", topic: str) -> None:
        """Produce records (key, value, and headers and partition if there are); SourceError if Kafka is the cause of a failure."""
        options = {**self.client_options, "kafka.bootstrap.servers": self.servers, "topic": topic}
        try:
            records.write.format("kafka").options(**options).save()
        except Exception as error:
            raise explained(str(error), self.section) or error from error

    @contextmanager
    def _admin(self, jvm: Any) -> Iterator[Any]:
        settings = jvm.java.util.Properties()
        given = {name.removeprefix(_PREFIX): value for name, value in self.client_options.items()}
        timeouts = {"request.timeout.ms": str(TIMEOUT_MS // 2), "default.api.timeout.ms": str(TIMEOUT_MS)}
        for name, value in {**timeouts, **given, "bootstrap.servers": self.servers}.items():
            settings.put(name, value)
        try:
            admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        except spark_names.Py4JJavaError as error:
            cause = error.java_exception.getCause() or error.java_exception
            raise SourceError(f"{self.section}.options: {cause.getMessage()}; correct the options") from error
        try:
            yield admin
        finally:
            admin.close()

    def _explained(self, topic: str, text: str) -> SourceError:
        if _MISSING in text:
            return MissingTopicError(
                f"{self.section}.topic: {topic!r} does not exist on {self.bootstrap_servers!r}; create it or correct the name"
            )
        if any(sign in text for sign in _REFUSED):
            return SourceError(
                f"{self.section}.topic: {topic!r} is closed to this user ({text.rpartition(': ')[2]}); "
                f"give it the right to read, or set kafka.security.protocol and its options in {self.section}.options"
            )
        return SourceError(
            f"{self.section}.bootstrap_servers: {self.bootstrap_servers!r} does not answer as Kafka ({text.rpartition(': ')[2]}); "
            f"correct host:port, or set kafka.security.protocol in {self.section}.options"
        )


class MissingTopicError(SourceError):
    """The topic does not exist."""


def only_the_report_failed(text: str) -> bool:
    """Say whether a query failed by a bug of Spark 4.1's connector only, and is to be started again.

    The first batch after a restart, if it is one that was planned before, is run and committed; then the connector's
    metrics fail on the latest offsets, which were not asked for yet (https://github.com/apache/spark/issues/55236).
    """
    return "IterableOps.map" in text and 'return value of "scala.Option.get()" is null' in text


def explained(text: str, section: str = "source") -> SourceError | None:
    """Return the error that a failed query's messages mean if Kafka is the cause; else None."""
    if any(sign in text for sign in _LOST):
        return SourceError(
            f"{section}.topic: records that were not read yet are gone from Kafka (retention, or the topic was recreated); "
            f"set failOnDataLoss = false in {section}.options to go on without them, or start a new warehouse"
        )
    if _MISSING in text:
        return SourceError(f"{section}.topic: was deleted, or partitions of it were; create it again or restore it")
    if any(sign in text for sign in _REFUSED):
        return SourceError(
            f"{section}.topic: is closed to this user; give it the right to read, or set Kafka's options in {section}.options"
        )
    if "RecordTooLargeException" in text:
        return SourceError(f"{section}: a record is larger than its topic takes; raise the topic's max.message.bytes")
    if any(sign in text for sign in _SILENT):
        return UnreachableError(
            f"{section}.bootstrap_servers: Kafka stopped answering; nothing is lost, start again once it does"
        )
    return None
