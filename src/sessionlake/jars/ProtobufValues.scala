package org.apache.spark.sql.avro

import java.io.{IOException, Writer}
import java.nio.ByteBuffer
import java.util.Base64
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.{JsonFactory, JsonGenerator}
import com.fasterxml.jackson.databind.JsonNode
import com.google.protobuf.{ByteString, CodedInputStream, DescriptorProtos, Duration, DynamicMessage, Message, Timestamp}
import com.google.protobuf.Descriptors.{Descriptor, EnumValueDescriptor, FieldDescriptor, FileDescriptor}
import com.google.protobuf.Descriptors.FieldDescriptor.JavaType
import com.google.protobuf.util.{Durations, Timestamps}

import org.apache.spark.sql.Column
import org.apache.spark.sql.catalyst.expressions.{ExpectsInputTypes, Expression, GenericInternalRow, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.classic.ExpressionUtils
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** A schema registry's files of Protobuf, which it gives serialized: as descriptors, and not as the text that people write. */
final class ProtobufRegistry(urls: String, user: String, password: String) extends Serializable {
  import ProtobufRegistry._

  @transient private lazy val registry = new Registry(urls, user, password)

  override def toString: String = "ProtobufRegistry"

  /** The file of an id, or the reason why there is none. It may be asked for elsewhere only if `mayAsk`. */
  def file(id: Int, mayAsk: Boolean): Either[String, FileDescriptor] = {
    val key = (urls, id)
    if (id < 0) Left(s"no schema $id in the registry")
    else Option(files.get(key)).getOrElse {
      if (!mayAsk) Left(s"schema $id was not asked for, because the registry has none for too many other ids")
      else registry.get(s"schemas/ids/$id?$Serialized") match {
        case None => Left(s"no schema $id in the registry")
        case Some(found) =>
          val built = parsed(found, s"schema $id")
          files.put(key, built)
          built
      }
    }
  }

  /** The columns of a subject's newest file, those of `names` that it lacks from the newest version that has them; null for an unknown subject. */
  def columns(subject: String, names: java.util.List[String]): String =
    registry.columnsOf(subject, names, s"?$Serialized")((found, what) => parsed(found, what).map(columnsIn))

  private def parsed(found: JsonNode, what: String): Either[String, FileDescriptor] =
    Option(found.get("schemaType")).map(_.asText).getOrElse("AVRO") match {
      case "PROTOBUF" =>
        try Right(built(found, mutable.Map()))
        catch {
          case error: RegistryException => throw error
          case Refused(error) =>
            Left(s"$what can't be read: ${error.getClass.getSimpleName}; the registry must give files of Protobuf with format=serialized")
        }
      case kind => Left(s"$what is of $kind, not of Protobuf")
    }

  /** A file with all that it imports; those that Protobuf itself brings are in its library. */
  private def built(found: JsonNode, known: mutable.Map[String, FileDescriptor]): FileDescriptor = {
    for (reference <- Option(found.get("references")).toSeq.flatMap(_.elements.asScala)) {
      val name = reference.get("name").asText
      if (!known.contains(name)) {
        // Old schemas refer to versions that may be deleted since.
        val path = s"${registry.versionsOf(reference.get("subject").asText)}/${reference.get("version").asInt}?deleted=true&$Serialized"
        val named = registry.get(path).getOrElse(throw new IOException(s"$name is not there"))
        known.put(name, built(named, known))
      }
    }
    val bytes = Base64.getDecoder.decode(found.get("schema").asText)
    val proto = DescriptorProtos.FileDescriptorProto.parseFrom(bytes)
    val imports = proto.getDependencyList.asScala.map(name => known.getOrElse(name, OfLibrary.getOrElse(name, throw new IOException(s"$name is not there"))))
    FileDescriptor.buildFrom(proto, imports.toArray)
  }
}

object ProtobufRegistry {
  private val Serialized = "format=serialized"
  private[avro] val Wrapper = "google\\.protobuf\\.(?:Double|Float|U?Int64|U?Int32|Bool|String|Bytes)Value".r
  private[avro] val Unsigned = Set(FieldDescriptor.Type.UINT64, FieldDescriptor.Type.FIXED64, FieldDescriptor.Type.UINT32, FieldDescriptor.Type.FIXED32)
  private val files = new ConcurrentHashMap[(String, Int), Either[String, FileDescriptor]]()
  private lazy val OfLibrary: Map[String, FileDescriptor] = Seq(
    com.google.protobuf.TimestampProto.getDescriptor, com.google.protobuf.DurationProto.getDescriptor,
    com.google.protobuf.WrappersProto.getDescriptor, com.google.protobuf.StructProto.getDescriptor,
    com.google.protobuf.AnyProto.getDescriptor, com.google.protobuf.EmptyProto.getDescriptor,
    com.google.protobuf.FieldMaskProto.getDescriptor, DescriptorProtos.getDescriptor
  ).map(file => file.getName -> file).toMap

  /** The columns of a file's first message, then those of its other messages. */
  private def columnsIn(file: FileDescriptor): StructType = {
    val found = mutable.LinkedHashMap[String, StructField]()
    for (message <- file.getMessageTypes.asScala; field <- fieldsOf(message, Set())) found.getOrElseUpdate(field.name, field)
    StructType(found.values.toSeq)
  }

  private def fieldsOf(message: Descriptor, open: Set[String]): Seq[StructField] =
    message.getFields.asScala.toSeq.flatMap(field => typeOf(field, open + message.getFullName).map(StructField(field.getName, _)))

  private def typeOf(field: FieldDescriptor, open: Set[String]): Option[DataType] =
    if (field.isMapField) plain(field.getMessageType.findFieldByName("value"), open).map(MapType(StringType, _))
    else if (field.isRepeated) plain(field, open).map(ArrayType(_))
    else plain(field, open)

  /** A value's type as JSON has it; None for messages within themselves, and for those of any form. */
  private def plain(field: FieldDescriptor, open: Set[String]): Option[DataType] = field.getJavaType match {
    case JavaType.DOUBLE | JavaType.FLOAT => Some(DoubleType)
    case JavaType.BOOLEAN => Some(BooleanType)
    case JavaType.INT => Some(LongType)
    case JavaType.LONG =>
      Some(if (Unsigned(field.getType)) DecimalType(20, 0) else LongType)
    case JavaType.STRING | JavaType.BYTE_STRING | JavaType.ENUM => Some(StringType)
    case JavaType.MESSAGE =>
      val message = field.getMessageType
      message.getFullName match {
        case "google.protobuf.Timestamp" => Some(TimestampType)
        case "google.protobuf.Duration" => Some(StringType)
        case "google.protobuf.Any" | "google.protobuf.Struct" | "google.protobuf.Value" | "google.protobuf.ListValue" => None
        case Wrapper() => typeOf(message.findFieldByName("value"), open)
        case name if open.contains(name) => None
        case _ => Some(StructType(fieldsOf(message, open))).filter(_.nonEmpty)
      }
  }
}

object ProtobufValue {
  /** The values of a column as JSON, as a struct: `value`, a text, and `error`, null for values that were decoded. */
  def column(value: Column, registry: ProtobufRegistry): Column =
    ExpressionUtils.column(ProtobufValue(ExpressionUtils.expression(value), registry))

  /** Reasons that a task keeps, and ids without a schema that it asks for. */
  private val KeptReasons = 1000
  /** The most characters of JSON for each byte, and those that any value may have: fields that were not sent have text, too. */
  private val LengthOfByte = 64L
  private val SpareLength = 1L << 20

  /** A text that ends with an error when it gets too long: a value of a megabyte may stand for gigabytes of empty messages. */
  private class Bounded(most: Long) extends Writer {
    val text = new java.lang.StringBuilder

    override def write(more: Array[Char], first: Int, count: Int): Unit = {
      if (text.length + count > most) throw new IOException("a value is too large")
      text.append(more, first, count)
    }
    override def flush(): Unit = ()
    override def close(): Unit = ()
  }

  private val factory = new JsonFactory()

  /** A message as JSON, by the names of its file. Fields without presence are there although they were not sent, as Protobuf has it. */
  private def json(message: Message, most: Long): String = {
    val text = new Bounded(most)
    val out = factory.createGenerator(text)
    write(out, message)
    out.flush()
    text.text.toString
  }

  private def write(out: JsonGenerator, message: Message): Unit = {
    out.writeStartObject()
    for (field <- message.getDescriptorForType.getFields.asScala if !field.hasPresence || message.hasField(field)) {
      out.writeFieldName(field.getName)
      if (field.isMapField) writePairs(out, message.getField(field).asInstanceOf[java.util.List[Message]])
      else if (field.isRepeated) {
        out.writeStartArray()
        message.getField(field).asInstanceOf[java.util.List[_]].forEach(writeOne(out, field, _))
        out.writeEndArray()
      } else writeOne(out, field, message.getField(field))
    }
    out.writeEndObject()
  }

  private def writePairs(out: JsonGenerator, pairs: java.util.List[Message]): Unit = {
    out.writeStartObject()
    val last = mutable.LinkedHashMap[String, Message]()
    pairs.forEach(pair => last.put(pair.getField(pair.getDescriptorForType.findFieldByNumber(1)).toString, pair))
    for ((key, pair) <- last) {
      val field = pair.getDescriptorForType.findFieldByNumber(2)
      out.writeFieldName(key)
      writeOne(out, field, pair.getField(field))
    }
    out.writeEndObject()
  }

  private def writeOne(out: JsonGenerator, field: FieldDescriptor, value: Any): Unit = (field.getJavaType, value) match {
    case (JavaType.INT, number: java.lang.Integer) =>
      if (isUnsigned(field)) out.writeNumber(java.lang.Integer.toUnsignedLong(number)) else out.writeNumber(number.intValue)
    // A number of JSON is a double where it is longer than a long.
    case (JavaType.LONG, number: java.lang.Long) =>
      if (isUnsigned(field)) out.writeString(java.lang.Long.toUnsignedString(number)) else out.writeNumber(number.longValue)
    case (JavaType.FLOAT, number: java.lang.Float) => out.writeNumber(number.floatValue)
    case (JavaType.DOUBLE, number: java.lang.Double) => out.writeNumber(number.doubleValue)
    case (JavaType.BOOLEAN, flag: java.lang.Boolean) => out.writeBoolean(flag)
    case (JavaType.BYTE_STRING, bytes: ByteString) => out.writeString(Base64.getEncoder.encodeToString(bytes.toByteArray))
    case (JavaType.ENUM, name: EnumValueDescriptor) => out.writeString(name.getName)
    case (JavaType.MESSAGE, message: Message) =>
      def number(of: Int) = message.getField(message.getDescriptorForType.findFieldByNumber(of)).asInstanceOf[Number]
      message.getDescriptorForType.getFullName match {
        case "google.protobuf.Timestamp" =>
          out.writeString(Timestamps.toString(Timestamp.newBuilder().setSeconds(number(1).longValue).setNanos(number(2).intValue).build()))
        case "google.protobuf.Duration" =>
          out.writeString(Durations.toString(Duration.newBuilder().setSeconds(number(1).longValue).setNanos(number(2).intValue).build()))
        case ProtobufRegistry.Wrapper() =>
          val inner = message.getDescriptorForType.findFieldByNumber(1)
          writeOne(out, inner, message.getField(inner))
        case _ => write(out, message)
      }
    case _ => out.writeString(value.toString)
  }

  private def isUnsigned(field: FieldDescriptor) = ProtobufRegistry.Unsigned.contains(field.getType)
}

case class ProtobufValue(child: Expression, registry: ProtobufRegistry)
    extends UnaryExpression
    with ExpectsInputTypes
    with CodegenFallback {
  import ProtobufValue._

  override def inputTypes: Seq[AbstractDataType] = Seq(BinaryType)
  override def dataType: StructType = new StructType().add("value", StringType).add("error", StringType)
  override def nullable: Boolean = child.nullable
  override def prettyName: String = "protobuf_value"
  override protected def withNewChildInternal(newChild: Expression): ProtobufValue = copy(child = newChild)

  @transient private lazy val readers = mutable.HashMap[(Int, Seq[Int]), Either[String, Reader]]()
  @transient private var unknown = 0

  override protected def nullSafeEval(input: Any): Any = {
    val bytes = input.asInstanceOf[Array[Byte]]
    val found = try read(bytes) catch {
      case error: RegistryException => throw error
      case Refused(_) => Left("bad Protobuf: the value does not begin with the id of a schema and the place of a message")
    }
    new GenericInternalRow(found.fold(reason => Array[Any](null, UTF8String.fromString(reason)), text => Array[Any](UTF8String.fromString(text), null)))
  }

  private def read(bytes: Array[Byte]): Either[String, String] = {
    if (bytes.length < Schemas.Header + 1 || bytes(0) != 0) throw new IOException()
    val in = CodedInputStream.newInstance(bytes, Schemas.Header, bytes.length - Schemas.Header)
    // A message's place in its file, and of the message within it: a count, and that many numbers; the first message has a zero alone.
    val count = in.readSInt32()
    if (count < 0 || count > bytes.length) throw new IOException()
    val place = if (count == 0) Seq(0) else Seq.fill(count)(in.readSInt32())
    readerOf(ByteBuffer.wrap(bytes, 1, 4).getInt, place).flatMap(_.read(in, bytes.length))
  }

  private def readerOf(id: Int, place: Seq[Int]): Either[String, Reader] =
    readers.getOrElse((id, place), {
      val file = registry.file(id, mayAsk = unknown < KeptReasons)
      if (file.isLeft) unknown += 1
      val made = file.flatMap { found =>
        val message = place.tail.foldLeft(found.getMessageTypes.asScala.lift(place.head)) {
          (outer, number) => outer.flatMap(_.getNestedTypes.asScala.lift(number))
        }
        message.map(new Reader(s"schema $id", _)).toRight(s"bad Protobuf: schema $id has no message ${place.mkString("[", ", ", "]")}")
      }
      // Bad records may have any id and any place.
      if (readers.size < 2 * KeptReasons) readers.put((id, place), made)
      made
    })

  private class Reader(name: String, message: Descriptor) {
    def read(in: CodedInputStream, size: Int): Either[String, String] =
      try {
        val read = DynamicMessage.newBuilder(message).mergeFrom(in)
        in.checkLastTagWas(0)
        Right(json(read.build(), LengthOfByte * size + SpareLength))
      } catch { case Refused(_) => Left(s"bad Protobuf: the value is not of ${message.getName} of $name") }
  }
}
