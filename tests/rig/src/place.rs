//! The files that the rig makes: programs, the folder of each run, dumps of failures; and the two things that it uses
//! of its process, environment and standard error. Nothing else in this crate reads the environment.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{Error, Result};

/// The value of an environment variable, when it is set and not empty.
#[expect(
    clippy::disallowed_methods,
    reason = "the rig is a test tool; its few switches come from the environment, here only"
)]
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Prints a line for the user. libtest captures the print macros, not the stream itself, so this line appears while a
/// test runs.
pub(crate) fn say(line: &str) {
    // One write, so that lines of tests that run at once do not mix; a closed stream is no failure.
    drop(std::io::stderr().write_all(format!("rig: {line}\n").as_bytes()));
}

/// `$RIG_FOLDER`, or `target/rig`: beside the running program when it lies in a cargo target folder, else that of this
/// workspace.
pub(crate) fn root() -> PathBuf {
    if let Some(folder) = environment("RIG_FOLDER") {
        return PathBuf::from(folder);
    }
    let beside_program = std::env::current_exe().ok().and_then(|program| {
        program
            .ancestors()
            .find(|up| up.join("CACHEDIR.TAG").is_file())
            .map(Path::to_path_buf)
    });
    beside_program
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"))
        .join("rig")
}

/// The folder of built programs, for every checkout of this user: `foretide-rig` in the folder of caches
/// (`$XDG_CACHE_HOME`, or `~/.cache`). Without a home they are in [`root`].
pub(crate) fn programs() -> PathBuf {
    let of_user = || Some(PathBuf::from(environment("HOME")?).join(".cache"));
    let caches = environment("XDG_CACHE_HOME").map(PathBuf::from);
    let caches = caches.filter(|folder| folder.is_absolute());
    let kept = caches.or_else(of_user);
    kept.map_or_else(|| root().join("bin"), |kept| kept.join("foretide-rig"))
}

/// The folder in which a [`Cluster`](crate::Cluster) that is dropped by a panic leaves its objects and logs: one folder
/// per failure, named after the test.
pub fn failures() -> PathBuf {
    root().join("failures")
}

/// The folder of one running part of the rig, removed when dropped unless `RIG_KEEP` is set.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Makes `target/rig/run/<pid>-<n>-<name>`, and removes the folders of killed processes.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be made.
    pub fn new(name: &str) -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let runs = root().join("run");
        remove_stale(&runs);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = runs.join(format!("{}-{number}-{name}", std::process::id()));
        fs::create_dir_all(&path).map_err(Error::file("create", &path))?;
        Ok(Self { path })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into the folder and returns its path.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, content).map_err(Error::file("write", &path))?;
        Ok(path)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if environment("RIG_KEEP").is_some() {
            // The file tells later runs to keep this folder.
            drop(fs::write(self.path.join("keep"), ""));
            say(&format!("kept {}", self.path.display()));
        } else {
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

/// Removes the run folders of processes that no longer run. Needs `/proc`.
fn remove_stale(runs: &Path) {
    if !Path::new("/proc/self").exists() {
        return;
    }
    let Ok(entries) = fs::read_dir(runs) else {
        return;
    };
    for folder in entries.flatten().map(|entry| entry.path()) {
        let name = folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let pid = name
            .as_deref()
            .and_then(|name| name.split('-').next())
            .unwrap_or_default();
        let gone = pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists();
        if gone && !folder.join("keep").exists() {
            drop(fs::remove_dir_all(&folder));
        }
    }
}
