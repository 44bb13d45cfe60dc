//! The file of events: appended to, rotated by size, and never left with half a line in the middle.
//!
//! A line is in the file when write(2) has returned: from then on it outlives the process. What outlives the machine
//! is what was synced. The file belongs to one gateway, which holds a lock on it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use crate::config::Audit as AuditConfig;

/// The file, open for appending.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    file: Arc<File>,
    length: u64,
    /// Whether the last line has no end, because a write was cut short.
    torn: bool,
    /// The size above which it is rotated; 0 for never.
    max_size: u64,
    /// How many rotated files are kept.
    keep: u32,
    /// Whether what was renamed has to be synced first.
    durable: bool,
}

impl EventFile {
    /// Opens the file at `path`, or makes one that nobody else can read. If its last line has no end, since whoever wrote
    /// it was stopped, the next one begins a line of its own.
    ///
    /// # Errors
    /// It cannot be opened, is no regular file, or another process has it.
    pub(super) fn open(path: &Path, config: &AuditConfig) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("expected a regular file"));
        }
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(io::Error::other("another process writes to it"));
        }
        let (length, mut last) = (found.len(), [b'\n']);
        if let Some(at) = length.checked_sub(1) {
            file.read_exact_at(&mut last, at)?;
        }
        if config.durable {
            sync_folder(path)?;
        }
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
            length,
            torn: last != *b"\n",
            max_size: config.max_size,
            keep: config.keep,
            durable: config.durable,
        })
    }

    /// The open file, to be synced.
    pub(super) fn handle(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Appends whole lines, each with its line end. Either all of them are in the file afterwards, or none.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let size = self.length.saturating_add(line.len() as u64);
        if self.max_size != 0 && self.length != 0 && size > self.max_size {
            // A file that grows too large is better than events that are lost.
            if let Err(error) = self.rotate() {
                tracing::warn!(path = %self.path.display(), %error, "the events cannot be rotated");
            }
        }
        if self.torn {
            self.put(b"\n")?;
            self.torn = false;
        }
        self.put(line)
    }

    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let whole = bytes.len();
        while !bytes.is_empty() {
            match (&*self.file).write(bytes) {
                Ok(0) => return Err(self.cut(whole - bytes.len(), io::ErrorKind::WriteZero.into())),
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.cut(whole - bytes.len(), error)),
            }
        }
        self.length += whole as u64;
        Ok(())
    }

    /// Takes back what was written of a line that does not fit.
    fn cut(&mut self, written: usize, error: io::Error) -> io::Error {
        if written > 0 {
            // The length that there is, since somebody may have truncated the file.
            let cut = self.file.metadata().and_then(|found| {
                let length = found.len().saturating_sub(written as u64);
                self.file.set_len(length)
            });
            self.torn = cut.is_err();
        }
        error
    }

    /// Opens the path anew if there is another file by now, or none.
    ///
    /// # Errors
    /// As for [`EventFile::open`]; the file that was open stays.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        if fs::metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino())) {
            return Ok(());
        }
        self.replace()
    }

    fn replace(&mut self) -> io::Result<()> {
        if self.durable {
            self.file.sync_data()?;
        }
        let config =
            AuditConfig { max_size: self.max_size, keep: self.keep, durable: self.durable, ..AuditConfig::default() };
        *self = Self::open(&self.path, &config)?;
        Ok(())
    }

    /// Renames the file to `.1`, that to `.2`, and so on, and begins a new one.
    fn rotate(&mut self) -> io::Result<()> {
        if self.keep == 0 {
            fs::remove_file(&self.path)?;
            return self.replace();
        }
        for number in (1..self.keep).rev() {
            match fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, self.numbered(1))?;
        self.replace()
    }

    /// Has every write fail.
    #[cfg(test)]
    pub(super) fn break_off(&mut self) {
        self.file = Arc::new(File::open(&self.path).unwrap());
    }

    /// Has writes go on.
    #[cfg(test)]
    pub(super) fn mend(&mut self) {
        self.file = Arc::new(OpenOptions::new().append(true).open(&self.path).unwrap());
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        name.into()
    }
}

/// Has the name of a new file outlive the machine too.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn open(dir: &TempDir, max_size: u64, keep: u32) -> EventFile {
        let config = AuditConfig { max_size, keep, durable: true, ..AuditConfig::default() };
        EventFile::open(&dir.path().join("events"), &config).unwrap()
    }

    fn read(dir: &TempDir, name: &str) -> Option<String> {
        fs::read_to_string(dir.path().join(name)).ok()
    }

    #[test]
    fn files_are_rotated_by_size_and_the_oldest_go() {
        let dir = TempDir::new().unwrap();
        let mut file = open(&dir, 10, 2);
        for line in ["aaaa\n", "bbbb\n", "cccc\n", "a line longer than a file may be\n", "dddd\n"] {
            file.append(line.as_bytes()).unwrap();
        }
        assert_eq!(read(&dir, "events").unwrap(), "dddd\n");
        assert_eq!(read(&dir, "events.1").unwrap(), "a line longer than a file may be\n");
        assert_eq!((read(&dir, "events.2").unwrap(), read(&dir, "events.3")), ("cccc\n".to_owned(), None));

        let dir = TempDir::new().unwrap();
        let mut file = open(&dir, 10, 0);
        ["aaaa\n", "bbbb\n", "cccc\n"].iter().for_each(|line| file.append(line.as_bytes()).unwrap());
        assert_eq!((read(&dir, "events").unwrap(), read(&dir, "events.1")), ("cccc\n".to_owned(), None));
    }

    #[test]
    fn a_torn_line_is_left_and_the_next_begins_anew() {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("events"), "whole\nto").unwrap();
        let mut file = open(&dir, 0, 1);
        file.append(b"next\n").unwrap();
        file.append(b"last\n").unwrap();
        assert_eq!(read(&dir, "events").unwrap(), "whole\nto\nnext\nlast\n");
    }

    #[test]
    fn what_was_renamed_is_let_go_of() {
        let dir = TempDir::new().unwrap();
        let mut file = open(&dir, 0, 1);
        file.append(b"one\n").unwrap();
        file.reopen().unwrap();
        file.append(b"two\n").unwrap();
        fs::rename(dir.path().join("events"), dir.path().join("old")).unwrap();
        file.append(b"three\n").unwrap();
        file.reopen().unwrap();
        file.append(b"four\n").unwrap();
        assert_eq!(
            (read(&dir, "old").unwrap(), read(&dir, "events").unwrap()),
            ("one\ntwo\nthree\n".to_owned(), "four\n".to_owned())
        );
    }

    #[test]
    fn a_file_has_one_owner_and_is_a_file() {
        let dir = TempDir::new().unwrap();
        let _file = open(&dir, 0, 1);
        let config = AuditConfig::default();
        let refused = |path: &Path| EventFile::open(path, &config).unwrap_err().to_string();
        assert_eq!(refused(&dir.path().join("events")), "another process writes to it");
        assert_eq!(refused(Path::new("/dev/null")), "expected a regular file");
        assert!(refused(&dir.path().join("no/events")).contains("No such file"));
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        let dir = TempDir::new().unwrap();
        let mut file = open(&dir, 0, 1);
        file.append(b"one\n").unwrap();
        file.break_off();
        assert!(file.append(b"two\n").is_err());
        file.mend();
        file.append(b"three\n").unwrap();
        assert_eq!(read(&dir, "events").unwrap(), "one\nthree\n");
    }
}
