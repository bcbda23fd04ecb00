//! Child processes that cannot outlive the test: killed when dropped, and by the kernel when the test process itself
//! is killed (through `setpriv --pdeathsig`, where util-linux has it). Also the loopback ports that they listen on.

use std::{
    collections::BTreeSet,
    fs, io,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{LazyLock, Mutex, PoisonError, mpsc},
    thread,
};

use crate::{Error, Result};

/// A running child whose output goes to one log file.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    log: PathBuf,
}

impl Child {
    /// Starts `command` with its output appended to `log`.
    pub(crate) fn spawn(command: &Command, log: &Path) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let open = || fs::OpenOptions::new().create(true).append(true).open(log);
        let mut command = killed_with_parent(command);
        command
            .stdin(Stdio::null())
            .stdout(open().map_err(Error::file("open", log))?)
            .stderr(open().map_err(Error::file("open", log))?);
        let process = spawn_from_lasting_thread(command)
            .map_err(|source| Error::Spawn { program, source })?;
        Ok(Self {
            process,
            log: log.to_path_buf(),
        })
    }

    /// The exit status of the child, if it has exited.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// The last lines of the child's log.
    pub(crate) fn log_tail(&self) -> String {
        tail(&self.log, 25)
    }

    /// Kills the child at once, with SIGKILL.
    pub(crate) fn kill(&mut self) {
        // An error means that it has exited already.
        drop(self.process.kill());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        drop(self.process.wait());
    }
}

/// The last `lines` lines of a file; empty when it cannot be read.
pub(crate) fn tail(file: &Path, lines: usize) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..)
        .unwrap_or_default()
        .join("\n")
}

/// The command, run so that the kernel kills it when this process ends.
fn killed_with_parent(command: &Command) -> Command {
    static SETPRIV: LazyLock<bool> = LazyLock::new(|| {
        let probe = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "true"])
            .output();
        probe.is_ok_and(|probe| probe.status.success())
    });
    let mut bound = if *SETPRIV {
        let mut setpriv = Command::new("setpriv");
        setpriv
            .args(["--pdeathsig", "KILL", "--"])
            .arg(command.get_program());
        setpriv
    } else {
        Command::new(command.get_program())
    };
    bound.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound
}

type Order = (Command, mpsc::SyncSender<io::Result<std::process::Child>>);

/// The death signal comes when the *thread* that started a child ends, and a test's thread ends
/// before a cluster that several tests share. So one thread starts all children and never ends.
fn spawn_from_lasting_thread(command: Command) -> io::Result<std::process::Child> {
    static ORDERS: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, incoming) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in incoming {
                // The caller waits; if it has panicked meanwhile, the child is dropped and killed with the result.
                drop(answer.send(command.spawn()));
            }
        });
        orders
    });
    let gone = || io::Error::other("the thread that starts processes is gone");
    let (answer, result) = mpsc::sync_channel(1);
    ORDERS.send((command, answer)).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}

/// First and last port that the rig uses: below Linux's ephemeral range (32768 on), so that no outgoing connection
/// takes the port of a server while it is down.
const PORTS: (u16, u16) = (18_000, 31_999);

/// A port on 127.0.0.1 without a listener, never returned twice by this process. It is below the ephemeral range: an
/// outgoing connection cannot take it before its server listens, as can happen to a port that the system chose.
///
/// # Errors
/// [`Error::NoPort`] when all are in use.
pub fn free_port() -> Result<u16> {
    static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let (first, last) = PORTS;
    let span = u32::from(last - first) + 1;
    // Processes that run at the same time start far apart.
    let start = std::process::id().wrapping_mul(641) % span;
    let candidates = (0..span).filter_map(|step| {
        u16::try_from((start + step) % span)
            .ok()
            .map(|offset| first + offset)
    });
    for port in candidates {
        if !taken.contains(&port) && is_free(port) {
            taken.insert(port);
            return Ok(port);
        }
    }
    Err(Error::NoPort { first, last })
}

/// Returns whether this port of 127.0.0.1 has no listener.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}
