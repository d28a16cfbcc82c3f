package org.apache.spark.sql.avro

import java.io.{CharArrayWriter, EOFException, IOException}
import java.net.{URI, URLEncoder}
import java.net.http.{HttpClient, HttpRequest, HttpResponse}
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.time.Duration
import java.util.Base64
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.avro.Schema
import org.apache.avro.generic.GenericDatumReader
import org.apache.avro.io.{Decoder, DecoderFactory}
import org.apache.avro.util.Utf8

import org.apache.spark.sql.Column
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{ArrayTransform, BoundReference, Cast, CreateNamedStruct, ExpectsInputTypes, Expression, GenericInternalRow, GetStructField, If, IsNull, LambdaFunction, Literal, NamedLambdaVariable, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.json.{JSONOptions, JacksonGenerator}
import org.apache.spark.sql.classic.ExpressionUtils
import org.apache.spark.sql.types.{AbstractDataType, ArrayType, BinaryType, DataType, DecimalType, MapType, StringType, StructField, StructType}
import org.apache.spark.unsafe.types.UTF8String

/** The schemas that values were written with. */
trait Schemas extends Serializable {
  /** The number of a value's schema and the place of its first byte, or the reason why it has none. */
  def of(value: Array[Byte]): Either[String, (Int, Int)]

  /** A value's schema, or the reason why there is none. It may be asked for elsewhere only if `mayAsk`. */
  def schema(number: Int, mayAsk: Boolean): Either[String, Schema]

  /** A schema in reasons. */
  def named(number: Int): String

  /** Whether a value must end with its last field. */
  def isExact: Boolean

  protected def headed(value: Array[Byte]): Either[String, (Int, Int)] =
    if (value.length < Schemas.Header || value(0) != 0) Left("bad Avro: the value does not begin with the id of a schema")
    else Right((ByteBuffer.wrap(value, 1, 4).getInt, Schemas.Header))
}

object Schemas {
  /** The bytes before a value in Confluent's wire format: zero, and the id of the schema. */
  val Header = 5
}

/** One schema for all values, whatever their headers say; later ones may have more fields at their end. */
final class OneSchema(text: String, hasHeader: Boolean) extends Schemas {
  @transient private lazy val parsed = new Schema.Parser().parse(text)

  override def of(value: Array[Byte]): Either[String, (Int, Int)] =
    if (hasHeader) headed(value).map { case (_, first) => (0, first) } else Right((0, 0))
  override def schema(number: Int, mayAsk: Boolean): Either[String, Schema] = Right(parsed)
  override def named(number: Int): String = "the schema"
  override def isExact: Boolean = false
}

/** A schema registry with Confluent's interface, as Confluent's, Karapace, Redpanda's and Apicurio's have it.
  *
  * Schemas never change once they have an id, so each is asked for once in a JVM.
  */
final class Registry(urls: String, user: String, password: String) extends Schemas {
  import Registry._

  // Without the credentials, for plans are logged and shown.
  override def toString: String = "Registry"

  override def of(value: Array[Byte]): Either[String, (Int, Int)] = headed(value)
  override def named(number: Int): String = s"schema $number"
  override def isExact: Boolean = true

  override def schema(id: Int, mayAsk: Boolean): Either[String, Schema] = if (id < 0) missing(id) else {
    val key = (urls, id)
    Option(schemas.get(key)).orElse(Option(unknown.get(key)).filter(_ > System.nanoTime()).map(_ => missing(id))).getOrElse {
      if (!mayAsk) Left(s"schema $id was not asked for, because the registry has none for too many other ids") else get(s"schemas/ids/$id") match {
        case Some(found) =>
          val schema = parsed(found, s"schema $id")
          schemas.put(key, schema)
          schema
        case None =>
          // An id may get its schema later, but not each record of a bad program shall ask for it.
          if (unknown.size >= UnknownIds) unknown.clear()
          unknown.put(key, System.nanoTime() + Duration.ofMinutes(1).toNanos)
          missing(id)
      }
    }
  }

  /** The columns of a subject's newest schema, those of `names` that it lacks from the newest version that has them; null for an unknown subject. */
  def columns(subject: String, names: java.util.List[String]): String =
    columnsOf(subject, names, "") { (found, what) =>
      parsed(found, what).flatMap { schema =>
        if (schema.getType == Schema.Type.RECORD) Right(AvroValue.columnsOf(schema)) else Left(s"$what is no record")
      }
    }

  /** The same of schemas that are asked for with `query`, and whose columns `found` gives, or the reason why there are none. */
  private[avro] def columnsOf(subject: String, names: java.util.List[String], query: String)(
      found: (JsonNode, String) => Either[String, StructType]): String = {
    val at = versionsOf(subject)
    def version(number: Int): StructType = get(s"$at/$number$query") match {
      case None => new StructType()
      case Some(answer) =>
        found(answer, s"version $number of $subject").fold(reason => throw new RegistryException(urls, reason), identity)
    }
    get(at).map(_.elements.asScala.map(_.asInt).toSeq.sorted.reverse).filter(_.nonEmpty).orNull match {
      case null => null
      case versions =>
        val all = mutable.LinkedHashMap.from(version(versions.head).map(field => field.name -> field))
        val older = versions.tail.iterator
        while (older.hasNext && !names.asScala.forall(all.contains))
          version(older.next()).foreach(field => all.getOrElseUpdate(field.name, field))
        StructType(all.values.toSeq).json
    }
  }

  private[avro] def versionsOf(subject: String): String = s"subjects/${URLEncoder.encode(subject, UTF_8)}/versions"

  private def missing(id: Int) = Left(s"no schema $id in the registry")

  private def parsed(found: JsonNode, what: String): Either[String, Schema] =
    Option(found.get("schemaType")).map(_.asText).filter(_ != "AVRO") match {
      case Some(kind) => Left(s"$what is of $kind, not of Avro")
      case None =>
        val parser = new Schema.Parser()
        try {
          addReferences(found, parser, mutable.Set())
          Right(parser.parse(withinSpark(found.get("schema").asText)))
        } catch {
          case error: RegistryException => throw error
          case error: MissingReference => Left(s"$what can't be read: ${error.getMessage}")
          case Refused(error) => Left(s"$what can't be read: ${error.getClass.getSimpleName}")
        }
    }

  /** Let a parser know the types of other subjects that a schema names. */
  private def addReferences(found: JsonNode, parser: Schema.Parser, known: mutable.Set[String]): Unit =
    for (reference <- Option(found.get("references")).toSeq.flatMap(_.elements.asScala)) {
      val (subject, version) = (reference.get("subject").asText, reference.get("version").asInt)
      if (known.add(s"$subject $version")) {
        // Old schemas refer to versions that may be deleted since.
        val named = get(s"${versionsOf(subject)}/$version?deleted=true")
          .getOrElse(throw new MissingReference(s"version $version of $subject is not there"))
        addReferences(named, parser, known)
        parser.parse(withinSpark(named.get("schema").asText))
      }
    }

  /** A schema in which decimals that are too long for Spark are bytes: Connect writes 64 digits if none are declared. */
  private def withinSpark(schema: String): String = {
    def change(node: JsonNode): Unit = {
      node match {
        case decimal: ObjectNode if decimal.path("logicalType").asText == "decimal" && decimal.path("precision").asInt > DecimalType.MAX_PRECISION =>
          decimal.remove("logicalType")
        case _ =>
      }
      node.elements.forEachRemaining(change(_))
    }
    val tree = json.readTree(schema)
    change(tree)
    json.writeValueAsString(tree)
  }

  /** The answer to a request; None if the registry knows no such thing. */
  private[avro] def get(path: String): Option[JsonNode] = {
    var reason = ""
    for (attempt <- 0 until Attempts; url <- urls.split(',')) {
      if (reason.nonEmpty) Thread.sleep(PauseMs << attempt)
      try {
        val request = HttpRequest.newBuilder(URI.create(s"${url.trim.stripSuffix("/")}/$path")).timeout(Patience)
        if (user.nonEmpty) {
          val told = Base64.getEncoder.encodeToString(s"$user:$password".getBytes(UTF_8))
          request.header("Authorization", s"Basic $told")
        }
        val answer = client.send(request.build(), HttpResponse.BodyHandlers.ofInputStream())
        val body = try answer.body.readNBytes(MostBytes + 1) finally answer.body.close()
        if (body.length > MostBytes) throw new RegistryException(urls, s"an answer is longer than $MostBytes bytes")
        answer.statusCode match {
          case 200 => return Some(json.readTree(body))
          case 404 if json.readTree(body).has("error_code") => return None
          // A record may have any id.
          case 400 | 422 if path.startsWith("schemas/ids/") => return None
          case code @ (429 | 500 | 502 | 503 | 504) => reason = s"HTTP $code"
          case code => throw new RegistryException(urls, s"HTTP $code")
        }
      } catch {
        case error: IllegalArgumentException => throw new RegistryException(urls, "is no URL")
        case error: IOException => reason = Option(error.getMessage).getOrElse(error.getClass.getSimpleName)
      }
    }
    throw new RegistryException(urls, reason)
  }
}

private class MissingReference(what: String) extends RuntimeException(what)

/** A registry that does not answer, or not as one; the source's configuration is its cause. */
class RegistryException(urls: String, reason: String) extends RuntimeException(s"${Registry.Sign}$urls $reason")

object Registry {
  /** The begin of errors, by which sources/avro.py knows them. */
  val Sign = "SCHEMA_REGISTRY: "
  private val Attempts = 4
  private val PauseMs = 250L
  private val Patience = Duration.ofSeconds(10)
  private val UnknownIds = 10000
  private val MostBytes = 16 << 20
  private lazy val client = HttpClient.newBuilder().connectTimeout(Patience).build()
  private val json = new ObjectMapper()
  private val schemas = new ConcurrentHashMap[(String, Int), Either[String, Schema]]()
  private val unknown = new ConcurrentHashMap[(String, Int), Long]()
}

/** Errors that a value or a schema can cause. Scala calls StackOverflowError fatal, and Spark ends the JVM for it. */
private object Refused {
  def unapply(error: Throwable): Option[Throwable] = error match {
    case NonFatal(_) | _: StackOverflowError => Some(error)
    case _ => None
  }
}

object AvroValue {
  /** The values of a column, decoded by the schemas that they were written with, as a struct: `value` and `error`.
    *
    * `value` has the columns of a struct's type in JSON, for example {"type":"struct","fields":[...]}; without one it is a text, the value
    * as JSON, or a plain value as it is. `reader` is a schema of Avro, or empty: its defaults and aliases hold for values that lack a field. `error` is null for values that were decoded.
    */
  def column(value: Column, schemas: Schemas, columns: String, reader: String): Column = {
    val wanted = Option(columns).filter(_.nonEmpty).map(DataType.fromJson(_).asInstanceOf[StructType])
    ExpressionUtils.column(AvroValue(ExpressionUtils.expression(value), schemas, wanted, reader))
  }

  /** The type in JSON of the values of a schema. */
  def kind(schema: String): String = {
    val parsed = new Schema.Parser().parse(schema)
    if (parsed.getType == Schema.Type.RECORD) columnsOf(parsed).json else SchemaConverters.toSqlType(parsed).dataType.json
  }

  /** The columns of a record, without fields that Spark has no type for, for example those of a schema within itself. */
  def columnsOf(schema: Schema): StructType =
    StructType(schema.getFields.asScala.toSeq.flatMap { field =>
      sqlType(field.schema).map(of => StructField(field.name, of, nullable = true))
    })

  private def sqlType(schema: Schema): Option[DataType] =
    try Some(SchemaConverters.toSqlType(schema).dataType) catch { case Refused(_) => None }

  /** Reasons that a task keeps, and ids without a schema that it asks for. */
  private val KeptReasons = 1000
  private val MostFixed = 1 << 20
  private val Micros = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
  private val Times = Map("timestampFormat" -> s"${Micros}X", "timestampNTZFormat" -> Micros)
}

case class AvroValue(child: Expression, schemas: Schemas, columns: Option[StructType], reader: String)
    extends UnaryExpression
    with ExpectsInputTypes
    with CodegenFallback {
  import AvroValue._

  override def inputTypes: Seq[AbstractDataType] = Seq(BinaryType)
  override def dataType: StructType = new StructType().add("value", columns.getOrElse(StringType)).add("error", StringType)
  override def nullable: Boolean = child.nullable
  override def prettyName: String = "avro_value"
  override protected def withNewChildInternal(newChild: Expression): AvroValue = copy(child = newChild)

  // A task has its own: neither Avro's readers nor Spark's may be shared by threads.
  @transient private lazy val readers = mutable.HashMap[Int, Either[String, Reader]]()
  @transient private var unknown = 0

  @transient private lazy val fields: Map[String, Schema.Field] =
    if (reader.isEmpty) Map() else new Schema.Parser().parse(reader).getFields.asScala.map(field => field.name -> field).toMap

  override protected def nullSafeEval(input: Any): Any = {
    val bytes = input.asInstanceOf[Array[Byte]]
    val found = schemas.of(bytes).flatMap { case (number, first) => readerOf(number).flatMap(_.read(bytes, first)) }
    new GenericInternalRow(found.fold(reason => Array[Any](null, UTF8String.fromString(reason)), value => Array[Any](value, null)))
  }

  private def readerOf(number: Int): Either[String, Reader] =
    readers.getOrElse(number, {
      val found = schemas.schema(number, mayAsk = unknown < KeptReasons)
      if (found.isLeft) unknown += 1
      val made = found.flatMap(madeOf(schemas.named(number), _))
      // There may be any number of ids without a schema.
      if (made.isRight || readers.size < KeptReasons) readers.put(number, made)
      made
    })

  private def madeOf(name: String, writer: Schema): Either[String, Reader] =
    try Shape(writer).largestFixed match {
      case size if size > MostFixed => Left(s"bad Avro: $name has a fixed of $size bytes, and $MostFixed are allowed")
      case _ => readerFor(name, writer)
    } catch { case Refused(error) => Left(s"bad Avro: $name can't be read: ${error.getClass.getSimpleName}") }

  private def readerFor(name: String, writer: Schema): Either[String, Reader] =
    columns match {
      case None => SchemaConverters.toSqlType(writer).dataType match {
        case _: StructType | _: ArrayType | _: MapType => Right(new TextReader(name, writer))
        case _ => Right(new PlainReader(name, writer))
      }
      case Some(_) if writer.getType != Schema.Type.RECORD => Left(s"bad Avro: $name is no record")
      case Some(wanted) => ColumnsReader(name, writer, wanted)
    }

  /** Reads values of one schema. */
  private abstract class Reader(name: String, writer: Schema, projected: Schema) {
    private val datums = new GenericDatumReader[Any](writer, projected)
    private val deserializer =
      new AvroDeserializer(projected, SchemaConverters.toSqlType(projected).dataType, "CORRECTED", false, "", -1)
    private val decoder = new BoundedDecoder()
    private val isUnbounded = Shape(writer).isUnbounded
    private var datum: Any = _

    def read(bytes: Array[Byte], first: Int): Either[String, Any] =
      try {
        if (isUnbounded) new Walk(decoder.over(bytes, first), bytes.length).over(writer, 0)
        datum = datums.read(datum, decoder.over(bytes, first))
        if (schemas.isExact && !decoder.isEnd) bad else Right(finished(deserializer.deserialize(datum).get))
      } catch {
        case Refused(_) =>
          datum = null
          failed()
          bad
      }

    private val bad = Left(s"bad Avro: the value is not of $name")

    protected def finished(value: Any): Any

    /** Forgets what is half written of a value that was refused. */
    protected def failed(): Unit = ()
  }

  /** Gives a plain value, as a key may be, as text. */
  private class PlainReader(name: String, writer: Schema) extends Reader(name, writer, writer) {
    private val kind = SchemaConverters.toSqlType(writer).dataType
    private val cast = Cast(BoundReference(0, kind, nullable = true), StringType, Some("UTC"))

    override protected def finished(value: Any): Any = cast.eval(new GenericInternalRow(Array[Any](value)))
  }

  /** Gives a value whole, as JSON. */
  private class TextReader(name: String, writer: Schema) extends Reader(name, writer, writer) {
    private val text = new CharArrayWriter()
    private val kind = SchemaConverters.toSqlType(writer).dataType
    private var generator = made

    private def made = new JacksonGenerator(kind, text, new JSONOptions(Times ++ Map("ignoreNullFields" -> "false"), "UTC"))

    override protected def failed(): Unit = generator = made

    override protected def finished(value: Any): Any = {
      text.reset()
      generator.write(value.asInstanceOf[InternalRow])
      generator.flush()
      UTF8String.fromString(text.toString)
    }
  }

  /** Gives the wanted columns of a value; others are read past. */
  private class ColumnsReader(name: String, writer: Schema, projected: Schema, casts: Array[Expression])
      extends Reader(name, writer, projected) {
    override protected def finished(value: Any): Any = {
      val row = value.asInstanceOf[InternalRow]
      new GenericInternalRow(casts.map(_.eval(row)))
    }
  }

  private object ColumnsReader {
    def apply(name: String, writer: Schema, wanted: StructType): Either[String, Reader] = {
      val read = wanted.flatMap(field => readField(writer, field.name))
      val projected = Schema.createRecord(writer.getName, null, writer.getNamespace, writer.isError)
      projected.setFields(read.asJava)
      val kinds = SchemaConverters.toSqlType(projected).dataType.asInstanceOf[StructType]
      val casts = wanted.map { field =>
        kinds.getFieldIndex(field.name) match {
          case None => Right(Literal(null, field.dataType))
          case Some(at) =>
            val kind = kinds(at).dataType
            asWanted(BoundReference(at, kind, nullable = true), kind, field.dataType)
              .toRight(s"bad Avro: ${field.name} is a ${kind.catalogString} in $name, not a ${field.dataType.catalogString}")
        }
      }
      casts.collectFirst { case Left(reason) => reason } match {
        case Some(reason) => Left(reason)
        case None => Right(new ColumnsReader(name, writer, projected, casts.collect { case Right(cast) => cast }.toArray))
      }
    }

    /** A value in a wanted type; None if it has no values of it. The fields of records go by their names, at any depth; missing ones are null. */
    private def asWanted(value: Expression, kind: DataType, wanted: DataType): Option[Expression] = (kind, wanted) match {
      case _ if kind == wanted => Some(value)
      case (StructType(there), of: StructType) =>
        val fields = of.map { field =>
          there.indexWhere(_.name == field.name) match {
            case -1 => Some(Literal(null, field.dataType))
            case at => asWanted(GetStructField(value, at), there(at).dataType, field.dataType)
          }
        }
        if (fields.exists(_.isEmpty)) None
        else {
          val named = of.zip(fields).flatMap { case (field, found) => Seq(Literal(field.name), found.get) }
          Some(If(IsNull(value), Literal(null, of), CreateNamedStruct(named)))
        }
      case (ArrayType(item, _), ArrayType(of, _)) =>
        val each = NamedLambdaVariable("item", item, nullable = true)
        asWanted(each, item, of).map(found => ArrayTransform(value, LambdaFunction(found, Seq(each))))
      case _ if Cast.canUpCast(kind, wanted) => Some(Cast(value, wanted, Some("UTC")))
      case _ => None
    }

    /** The field by which a column is read: as it was written, under another name of the reader's, or as the reader's default. */
    private def readField(writer: Schema, name: String): Option[Schema.Field] = {
      val ours = fields.get(name)
      val names = name +: ours.toSeq.flatMap(_.aliases.asScala.toSeq.sorted)
      names.flatMap(other => Option(writer.getField(other))).headOption match {
        case Some(there) =>
          val field = new Schema.Field(name, there.schema)
          if (there.name != name) field.addAlias(there.name)
          Some(field)
        case None => ours.filter(_.hasDefaultValue).map(field => new Schema.Field(field, field.schema))
      }
    }
  }
}

/** What a schema allows that a value's length does not bound.
  *
  * `isUnbounded`: its values may be deep, as those of a type within itself, or have many more fields than bytes, as those of `null` have.
  */
private case class Shape(isUnbounded: Boolean, largestFixed: Int)

private object Shape {
  /** The fields of a value for each of its bytes that are usual: a record has some, too. */
  private val UsualFields = 4L

  def apply(schema: Schema): Shape = {
    var (isUnbounded, largest) = (false, 0)
    val sizes = new java.util.IdentityHashMap[Schema, (Long, Long)]()
    val open = java.util.Collections.newSetFromMap(new java.util.IdentityHashMap[Schema, java.lang.Boolean]())
    // The least bytes of a value, and its fields.
    def of(part: Schema): (Long, Long) =
      if (open.contains(part)) {
        isUnbounded = true
        (1, 1)
      } else Option(sizes.get(part)).getOrElse {
        open.add(part)
        val found: (Long, Long) = part.getType match {
          case Schema.Type.NULL => (0, 1)
          case Schema.Type.FIXED =>
            largest = largest.max(part.getFixedSize)
            (part.getFixedSize.toLong, 1)
          case Schema.Type.RECORD =>
            val (bytes, fields) = part.getFields.asScala.map(field => of(field.schema)).unzip
            (bytes.foldLeft(0L)(added), fields.foldLeft(1L)(added))
          case Schema.Type.UNION =>
            part.getTypes.forEach(of(_))
            (1, 1)
          case Schema.Type.ARRAY =>
            of(part.getElementType)
            (1, 1)
          case Schema.Type.MAP =>
            of(part.getValueType)
            (1, 1)
          case _ => (1, 1)
        }
        open.remove(part)
        sizes.put(part, found)
        if (found._2 > UsualFields * found._1 && part.getType != Schema.Type.NULL) isUnbounded = true
        if (part.getType == Schema.Type.ARRAY && of(part.getElementType)._1 == 0) isUnbounded = true
        found
      }
    of(schema)
    Shape(isUnbounded, largest)
  }

  private def added(one: Long, other: Long): Long = (one + other).min(Int.MaxValue.toLong)
}

/** Walks over a value before it is read, and refuses one that is deep, or has far more parts than bytes: to read it would take too much stack or memory. */
private class Walk(in: Decoder, bytes: Int) {
  import Walk._

  private var left = PartsOfByte * bytes + SparePart

  def over(schema: Schema, depth: Int): Unit = {
    left -= 1
    if (depth > MostDepth || left < 0) throw new IOException("a value is too deep or too large")
    schema.getType match {
      case Schema.Type.RECORD => schema.getFields.forEach(field => over(field.schema, depth + 1))
      case Schema.Type.UNION => over(schema.getTypes.get(in.readIndex()), depth)
      case Schema.Type.ARRAY => blocks(() => over(schema.getElementType, depth + 1))
      case Schema.Type.MAP =>
        blocks { () =>
          in.skipString()
          over(schema.getValueType, depth + 1)
        }
      case Schema.Type.FIXED => in.skipFixed(schema.getFixedSize)
      case Schema.Type.STRING => in.skipString()
      case Schema.Type.BYTES => in.skipBytes()
      case Schema.Type.ENUM => in.readEnum()
      case Schema.Type.INT => in.readInt()
      case Schema.Type.LONG => in.readLong()
      case Schema.Type.FLOAT => in.readFloat()
      case Schema.Type.DOUBLE => in.readDouble()
      case Schema.Type.BOOLEAN => in.readBoolean()
      case Schema.Type.NULL => in.readNull()
    }
  }

  private def blocks(each: () => Unit): Unit = {
    var count = in.readArrayStart()
    while (count > 0) {
      for (_ <- 0L until count) each()
      count = in.arrayNext()
    }
  }
}

private object Walk {
  private val MostDepth = 1000
  private val PartsOfByte = 16L
  private val SparePart = 10000L
}

/** Reads Avro's bytes, and believes no length that is longer than the value: Avro takes memory for what a length says, and one damaged
  * value would end the JVM.
  */
private class BoundedDecoder extends Decoder {
  private var in = DecoderFactory.get().binaryDecoder(Array.emptyByteArray, null)
  private var size = 0

  def over(bytes: Array[Byte], first: Int): Decoder = {
    size = bytes.length - first
    in = DecoderFactory.get().binaryDecoder(bytes, first, size, in)
    this
  }

  def isEnd: Boolean = in.isEnd

  private def length: Int = bounded(in.readLong()).toInt

  private def bounded(count: Long): Long =
    if (count < 0 || count > size) throw new EOFException("a length is longer than the value") else count

  private def bytes: Array[Byte] = {
    val found = new Array[Byte](length)
    in.readFixed(found)
    found
  }

  override def readString(old: Utf8): Utf8 = new Utf8(bytes)
  override def readString(): String = new String(bytes, UTF_8)
  override def skipString(): Unit = in.skipFixed(length)
  override def readBytes(old: ByteBuffer): ByteBuffer = ByteBuffer.wrap(bytes)
  override def skipBytes(): Unit = in.skipFixed(length)
  override def readArrayStart(): Long = bounded(in.readArrayStart())
  override def arrayNext(): Long = bounded(in.arrayNext())
  override def skipArray(): Long = skipBlocks()
  override def readMapStart(): Long = bounded(in.readMapStart())
  override def mapNext(): Long = bounded(in.mapNext())
  override def skipMap(): Long = skipBlocks()
  // A block whose count is negative has its length in bytes next.
  private def skipBlocks(): Long = {
    var count = in.readLong()
    while (count < 0) {
      in.skipFixed(length)
      count = in.readLong()
    }
    bounded(count)
  }

  override def readNull(): Unit = in.readNull()
  override def readBoolean(): Boolean = in.readBoolean()
  override def readInt(): Int = in.readInt()
  override def readLong(): Long = in.readLong()
  override def readFloat(): Float = in.readFloat()
  override def readDouble(): Double = in.readDouble()
  override def readFixed(found: Array[Byte], start: Int, count: Int): Unit = in.readFixed(found, start, count)
  override def skipFixed(count: Int): Unit = in.skipFixed(count)
  override def readEnum(): Int = in.readEnum()
  override def readIndex(): Int = in.readIndex()
}
