package sessionlake.s3

import java.io.IOException
import java.lang.{Boolean => JBoolean}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.FileAlreadyExistsException
import java.util.{Arrays, Iterator => JIterator}

import io.delta.storage.S3SingleDriverLogStore
import org.apache.commons.io.IOUtils
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}

/** Delta's log on S3 for any number of drivers: a commit is one conditional PUT (If-None-Match), which S3 itself decides.
  *
  * Delta's own class looks whether the file is there and then writes it: of two drivers at one moment the second wins, unseen.
  */
class ConditionalLogStore(initial: Configuration) extends S3SingleDriverLogStore(initial) {

  override def write(path: Path, actions: JIterator[String], overwrite: JBoolean, conf: Configuration): Unit =
    if (overwrite) super.write(path, actions, overwrite, conf)
    else {
      val text = new StringBuilder
      actions.forEachRemaining(action => text.append(action).append('\n'))
      val body = text.toString.getBytes(UTF_8)
      val fs = path.getFileSystem(conf)
      try putIfAbsent(fs, path, body)
      catch {
        // Refused: another's commit is there. Or this one, where the answer got lost and the SDK sent the request again.
        case error: IOException if fs.exists(path) =>
          if (!Arrays.equals(read(fs, path), body)) {
            val taken = new FileAlreadyExistsException(path.toString)
            taken.initCause(error)
            throw taken
          }
      }
    }

  private def putIfAbsent(fs: FileSystem, path: Path, body: Array[Byte]): Unit = {
    // `must`: a Hadoop or a store that can't do it fails here instead of overwriting.
    val out = fs.createFile(path).recursive().overwrite(false).must("fs.option.create.conditional.overwrite", true).build()
    try out.write(body)
    catch {
      case error: Throwable =>
        out.abort() // closing it would upload what there is of it
        throw error
    }
    out.close()
  }

  private def read(fs: FileSystem, path: Path): Array[Byte] = {
    val in = fs.open(path)
    try IOUtils.toByteArray(in)
    finally in.close()
  }
}
