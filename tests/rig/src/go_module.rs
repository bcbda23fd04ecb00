//! Programs built from pinned Go modules on first use. One process builds, the others wait for it; existing programs
//! are used as they are. Only Go modules are downloaded, through the ordinary `go` client, each checked by `go.sum`.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Error, Result,
    place::{programs, say},
};

/// A Go module of the rig: the folder with its `go.mod`, and the programs that are built from it.
#[derive(Debug)]
pub(crate) struct GoModule {
    pub(crate) what: &'static str,
    pub(crate) folder: &'static str,
    pub(crate) packages: &'static [&'static str],
    pub(crate) tags: &'static str,
    pub(crate) ldflags: &'static str,
}

impl GoModule {
    fn sources(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.folder)
    }

    /// The folder with this module's programs, built when needed.
    pub(crate) fn ensure(&self) -> Result<PathBuf> {
        let bin = programs();
        let name = Path::new(self.folder)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let finished = bin.join(format!("{name}-{:016x}", self.fingerprint()?));
        if finished.is_dir() {
            return Ok(finished);
        }
        fs::create_dir_all(&bin).map_err(Error::file("create", &bin))?;
        let lock = finished.with_extension("lock");
        let lock_file = fs::File::create(&lock).map_err(Error::file("create", &lock))?;
        if lock_file.try_lock().is_err() {
            say(&format!(
                "waiting for another process that builds {}",
                self.what
            ));
            lock_file.lock().map_err(Error::file("lock", &lock))?;
        }
        // Another process may have built it during the wait. The lock is released with its file.
        if !finished.is_dir() {
            self.build(&finished)?;
        }
        Ok(finished)
    }

    /// A hash of everything that goes into the build.
    fn fingerprint(&self) -> Result<u64> {
        let mut hasher = DefaultHasher::new();
        (self.packages, self.tags, self.ldflags).hash(&mut hasher);
        let sources = self.sources();
        let mut files = vec![sources.join("go.mod"), sources.join("go.sum")];
        files.extend(go_files(&sources)?);
        for path in files {
            fs::read(&path)
                .map_err(Error::file("read", &path))?
                .hash(&mut hasher);
        }
        Ok(hasher.finish())
    }

    /// Builds into a folder beside `finished`, and renames it when it is complete.
    fn build(&self, finished: &Path) -> Result<()> {
        let partial = finished.with_extension("partial");
        drop(fs::remove_dir_all(&partial));
        fs::create_dir_all(&partial).map_err(Error::file("create", &partial))?;
        say(&format!(
            "building {} (once; several minutes on first use)",
            self.what
        ));
        let mut go = Command::new("go");
        go.current_dir(self.sources())
            .env("CGO_ENABLED", "0")
            // The compiler collects garbage in a third of its time otherwise; a package needs two GB at most.
            .env("GOGC", "400")
            .args([
                "build",
                "-v",
                "-mod=readonly",
                "-trimpath",
                "-buildvcs=false",
                // Nobody debugs these programs, and `-s -w` would only remove it again.
                "-gcflags=all=-dwarf=false",
            ])
            .args(["-tags", self.tags, "-ldflags", self.ldflags, "-o"])
            .arg(&partial)
            .args(self.packages);
        self.run(&mut go)?;
        fs::rename(&partial, finished).map_err(Error::file("rename", &partial))?;
        say(&format!("built {}", self.what));
        Ok(())
    }

    /// Runs Go, and prints its progress every ten seconds.
    #[expect(
        clippy::disallowed_methods,
        reason = "only messages to the user show how long a build takes"
    )]
    fn run(&self, go: &mut Command) -> Result<()> {
        let spawned = go
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = spawned.map_err(not_started)?;
        let lines = lines_of(process.stderr.take());
        let (begin, mut spoken) = (Instant::now(), Instant::now());
        let mut output_lines: Vec<String> = Vec::new();
        loop {
            match lines.recv_timeout(Duration::from_secs(1)) {
                Ok(line) => output_lines.push(line),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if spoken.elapsed() >= Duration::from_secs(10) {
                spoken = Instant::now();
                say(&progress(self.what, begin.elapsed(), &output_lines));
            }
        }
        let status = process.wait().map_err(Error::file("wait for", "go"))?;
        if status.success() {
            return Ok(());
        }
        let output = output_lines
            .get(output_lines.len().saturating_sub(30)..)
            .unwrap_or_default()
            .join("\n");
        Err(Error::Build {
            what: self.what,
            folder: self.sources(),
            output,
        })
    }
}

/// The Go files below a folder, in order.
fn go_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::file("read", folder))? {
        let path = entry.map_err(Error::file("read", folder))?.path();
        if path.is_dir() {
            files.extend(go_files(&path)?);
        } else if path.extension() == Some("go".as_ref()) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The folder of a module that `go/definitions/go.mod` pins, downloaded when needed.
///
/// # Errors
/// [`Error::NoGo`], and [`Error::Build`] with the output of `go`.
pub(crate) fn downloaded(module: &str) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("go/definitions");
    let output = Command::new("go")
        .current_dir(&folder)
        .args(["mod", "download", "-json", module])
        .output()
        .map_err(not_started)?;
    let failed = |output: &[u8]| Error::Build {
        what: "the definitions of other projects",
        folder: folder.clone(),
        output: String::from_utf8_lossy(output).into_owned(),
    };
    let found: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|_| failed(&output.stderr))?;
    let path = found.get("Dir").and_then(serde_json::Value::as_str);
    path.map(PathBuf::from)
        .ok_or_else(|| failed(&output.stdout))
}

/// `go` could not be started.
fn not_started(source: std::io::Error) -> Error {
    match source.kind() {
        std::io::ErrorKind::NotFound => Error::NoGo,
        _ => Error::Spawn {
            program: "go".to_owned(),
            source,
        },
    }
}

/// One line about a build under way: `go build -v` names each package it has compiled.
fn progress(what: &str, elapsed: Duration, output_lines: &[String]) -> String {
    let last = output_lines.last().map(String::as_str).unwrap_or_default();
    let (seconds, count) = (elapsed.as_secs(), output_lines.len());
    format!("building {what}: {seconds} s, {count} packages and downloads, last {last}")
}

/// The lines of a stream, as they come, until it closes.
fn lines_of(stream: Option<impl std::io::Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = stream
            .into_iter()
            .flat_map(|stream| BufReader::new(stream).lines());
        for line in lines.map_while(std::io::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
