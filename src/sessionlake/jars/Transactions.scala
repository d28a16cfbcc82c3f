package sessionlake.kafka

import java.time.Duration
import java.util.concurrent.atomic.AtomicReference
import java.util.{Collections, HashMap => JavaMap, Map => AnyMap}

import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.consumer.KafkaConsumer
import org.apache.kafka.clients.producer.{KafkaProducer, ProducerRecord, RecordMetadata}
import org.apache.kafka.common.errors.TimeoutException
import org.apache.kafka.common.{KafkaException, TopicPartition}
import org.apache.kafka.common.serialization.{ByteArrayDeserializer, ByteArraySerializer}

import org.apache.spark.sql.{DataFrame, Row}

/** Sends records to a topic in transactions. Each has a position, a record of another topic, so that who reads committed records sees
  * what is sent from one position to the next once, and whoever goes on knows how far the topic is.
  *
  * Only one process at a time has an `id`: the next one ends the transaction of the one before, which can't send any more.
  */
final class Transactions(settings: AnyMap[String, String], id: String, topic: String, positions: String) extends AutoCloseable {
  private val Patience = Duration.ofSeconds(60)
  private val place = new TopicPartition(positions, 0)
  private val failure = new AtomicReference[Exception]()
  private val producer = {
    val all = new JavaMap[String, AnyRef](settings)
    all.put("transactional.id", id)
    new KafkaProducer[Array[Byte], Array[Byte]](all, new ByteArraySerializer, new ByteArraySerializer)
  }
  producer.initTransactions()

  /** The position of the last transaction that was committed; null or empty if there is none. */
  def position(): String = {
    val all = new JavaMap[String, AnyRef](settings)
    all.keySet.removeIf(name => name.startsWith("transaction"))
    all.put("isolation.level", "read_committed")
    all.put("enable.auto.commit", "false")
    val consumer = new KafkaConsumer[Array[Byte], Array[Byte]](all, new ByteArrayDeserializer, new ByteArrayDeserializer)
    try {
      val of = Collections.singletonList(place)
      consumer.assign(of)
      val (first, last) = (consumer.beginningOffsets(of).get(place).longValue, consumer.endOffsets(of).get(place).longValue)
      // The topic is compacted, but the newest is mostly among the last ones.
      val found = Iterator(last - 1000, first).map(_.max(first)).map(newest(consumer, _, last)).find(_ != null)
      found.orNull
    } finally consumer.close(Duration.ofSeconds(5))
  }

  private def newest(consumer: KafkaConsumer[Array[Byte], Array[Byte]], from: Long, until: Long): String = {
    consumer.seek(place, from)
    var found: String = null
    val end = System.nanoTime() + Patience.toNanos
    while (consumer.position(place) < until) {
      if (System.nanoTime() > end) throw new TimeoutException("the positions can't be read")
      // Without a value it says that others have sent records since.
      for (record <- consumer.poll(Duration.ofSeconds(1)).asScala if record.key != null && new String(record.key, "UTF-8") == topic)
        found = if (record.value == null) "" else new String(record.value, "UTF-8")
    }
    found
  }

  def begin(): Unit = {
    failure.set(null)
    producer.beginTransaction()
  }

  /** Send records of the columns key and value, bytes, as part of the transaction; return how many have a value, and how many have none. */
  def send(records: DataFrame): Array[Long] = {
    val sent = new Array[Long](2)
    // One part after the other comes to this process.
    val rows = records.select("key", "value").toLocalIterator()
    while (rows.hasNext) {
      val row: Row = rows.next()
      val value = row.getAs[Array[Byte]](1)
      put(new ProducerRecord(topic, row.getAs[Array[Byte]](0), value))
      sent(if (value == null) 1 else 0) += 1
    }
    sent
  }

  /** Commit the transaction with a position. */
  def commit(position: String): Unit = {
    put(new ProducerRecord(positions, 0, topic.getBytes("UTF-8"), position.getBytes("UTF-8")))
    producer.commitTransaction()
  }

  private def put(record: ProducerRecord[Array[Byte], Array[Byte]]): Unit = {
    producer.send(record, (_: RecordMetadata, error: Exception) => if (error != null) failure.compareAndSet(null, error))
    if (failure.get != null) throw failure.get
  }

  /** End; a transaction that was begun has no effect. Readers need not wait until it times out. */
  override def close(): Unit =
    try producer.abortTransaction()
    catch { case _: KafkaException | _: IllegalStateException => () }
    finally producer.close(Duration.ofSeconds(5))
}
