//! The folder of a session, with the files that its clients are pointed at. It goes when the session ends.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes one that nobody else has made or foreseen. Others may read it: what is in it for them to read is public,
    /// and a command may have helpers of another name, as apt does.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn new() -> io::Result<Self> {
        let unforeseen = RandomState::new().hash_one(std::process::id());
        let path = std::env::temp_dir().join(format!("exeat-{}-{unforeseen:016x}", std::process::id()));
        DirBuilder::new().mode(0o755).create(&path)?;
        Ok(Self(path))
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Settings of clients that read no variable for their roots, each with the variable that names the file. What the
    /// user has set stays in force: the file goes on from it, or is left away.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn settings(&self, bundle: &Path) -> io::Result<Vec<(&'static str, PathBuf)>> {
        let mut settings = Vec::new();
        let own = std::env::var_os("WGETRC").map(PathBuf::from);
        let own = own.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".wgetrc")));
        let own = own.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        // The user's file may hold passwords.
        let wget = self.write("wgetrc", &format!("{own}\nca_certificate = {}\n", bundle.display()), 0o600)?;
        settings.push(("WGETRC", wget));
        if std::env::var_os("APT_CONFIG").is_none() {
            let apt = format!("Acquire::https::CaInfo \"{}\";\n", bundle.display());
            settings.push(("APT_CONFIG", self.write("apt.conf", &apt, 0o644)?));
        }
        Ok(settings)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?.write_all(text.as_bytes())?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is in the folder for what is temporary.
        let _ = fs::remove_dir_all(&self.0);
    }
}
