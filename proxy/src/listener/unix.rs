//! A listener on a Unix socket.
//!
//! The socket is made in a folder that nobody else can enter, closed to others, and only then given its name, so that
//! no umask opens it even for a moment. A file that is there already is replaced if it is a socket on which nobody
//! listens.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// A listening Unix socket, whose file goes with it.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    _file: SocketFile,
}

/// The file of a socket; it is removed when this is dropped.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: a file that came later under the name is somebody else's.
    identity: (u64, u64),
}

impl UnixSocket {
    /// Listens at `path`, for the owner of the process alone.
    ///
    /// # Errors
    /// The path cannot be bound, something else is there, or somebody listens there.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        remove_stale(path)?;
        let folder = path.parent().unwrap_or(Path::new("")).join(format!(".x{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let hidden = folder.join("s");
        let bound = (|| {
            let listener = UnixListener::bind(&hidden)?;
            fs::set_permissions(&hidden, Permissions::from_mode(0o600))?;
            // A hard link fails where the name exists, so of two gateways that start at once one loses and says so.
            fs::hard_link(&hidden, path)?;
            let identity = identity(path)?;
            Ok(Self { listener, _file: SocketFile { path: path.to_owned(), identity } })
        })();
        let _ = fs::remove_file(&hidden);
        let _ = fs::remove_dir(&folder);
        bound
    }

    /// The listener.
    pub(crate) const fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there already")),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_socket_is_its_owners_and_goes_with_the_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("exeat.sock");
        let socket = UnixSocket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        assert_eq!(UnixSocket::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let (client, accepted) = tokio::join!(tokio::net::UnixStream::connect(&path), socket.listener().accept());
        assert!(client.is_ok() && accepted.is_ok());
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn only_a_socket_that_nobody_listens_on_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("exeat.sock");
        // A listener that ends without removing its file leaves a stale socket.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let first = UnixSocket::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = UnixSocket::bind(&path).unwrap();
        drop(first);
        assert!(path.exists(), "the file is the second one's");
        drop(second);
        fs::write(&path, "a file").unwrap();
        assert_eq!(UnixSocket::bind(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
    }
}
