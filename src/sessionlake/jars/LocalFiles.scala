package sessionlake.local

import java.io.{FileNotFoundException, IOException}
import java.net.URI
import java.nio.file.LinkOption.NOFOLLOW_LINKS
import java.nio.file.StandardCopyOption.ATOMIC_MOVE
import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.{FileAlreadyExistsException => TakenException, FileSystemException, Files, NoSuchFileException, Path => LocalPath}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.local.LocalConfigKeys
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.fs.{ChecksumFs, DelegateToFileSystem, FileAlreadyExistsException, FileStatus, FsServerDefaults}
import org.apache.hadoop.fs.{LocalFileSystem, Path, RawLocalFileSystem}

/** Hadoop's local files without its child processes: it starts a `chmod` for every file and folder that it makes, and a
  * `readlink` for every file that it renames, which is 3 ms each. The JDK asks the kernel, and the outcome is the same.
  */
class RawFiles extends RawLocalFileSystem {

  override def setPermission(path: Path, permission: FsPermission): Unit =
    // The JDK knows no sticky bit, and no permissions on file systems without POSIX's.
    if (permission.getStickyBit) super.setPermission(path, permission)
    else {
      val bits = Seq(permission.getUserAction, permission.getGroupAction, permission.getOtherAction).map(_.SYMBOL).mkString
      try Files.setPosixFilePermissions(local(path), PosixFilePermissions.fromString(bits))
      catch { case _: UnsupportedOperationException => super.setPermission(path, permission) }
    }

  override def getFileLinkStatus(path: Path): FileStatus =
    if (Files.isSymbolicLink(local(path))) super.getFileLinkStatus(path) else getFileStatus(path)

  def local(path: Path): LocalPath = pathToFile(path).toPath
}

/** Hadoop's LocalFileSystem, checksums included, on these files: `fs.file.impl`. */
class LocalFiles extends LocalFileSystem(new RawFiles)

/** The same for Hadoop's newer interface, FileContext, by which Spark and Delta commit: `fs.AbstractFileSystem.file.impl`. */
class LocalContext(uri: URI, conf: Configuration) extends ChecksumFs(new RawContext(uri, conf))

/** Hadoop's RawLocalFs on these files, with renames that are one step for the kernel.
  *
  * Hadoop looks whether a name is taken and then renames, so that of two processes that commit one version of a Delta log at
  * one moment the second replaces the first's, unseen; and it replaces a file by removing it first, so that a kill in between
  * leaves none.
  */
class RawContext(uri: URI, conf: Configuration) extends DelegateToFileSystem(uri, new RawFiles, conf, "file", false) {

  override def getUriDefaultPort: Int = -1

  override def isValidName(name: String): Boolean = true

  override def getServerDefaults: FsServerDefaults = LocalConfigKeys.getServerDefaults()

  override def getServerDefaults(path: Path): FsServerDefaults = getServerDefaults

  override def renameInternal(src: Path, dst: Path, overwrite: Boolean): Unit = {
    val (from, to) = (local(src), local(dst))
    if (!Files.isRegularFile(from, NOFOLLOW_LINKS) || Files.isDirectory(to, NOFOLLOW_LINKS)) super.renameInternal(src, dst, overwrite)
    else
      try if (overwrite) Files.move(from, to, ATOMIC_MOVE) else take(from, to)
      catch {
        case _: TakenException => throw new FileAlreadyExistsException(s"Rename destination $dst already exists.")
        case error: NoSuchFileException => throw new FileNotFoundException(error.getMessage)
        // No hard links on this file system: Hadoop's way, which is right for one process.
        case _: UnsupportedOperationException | _: FileSystemException if !overwrite => super.renameInternal(src, dst, overwrite)
      }
  }

  /** Give a file a name that must be free. A second name is a step that fails where it is taken; a rename would replace. */
  private def take(from: LocalPath, to: LocalPath): Unit = {
    Files.createLink(to, from)
    // The file has its name; where the old one can't be removed, it stays as a kill would leave it.
    try Files.delete(from)
    catch { case _: IOException => () }
  }

  private def local(path: Path): LocalPath = fsImpl.asInstanceOf[RawFiles].local(path)
}
