//! What the machine is asked for: how busy it is, what a process takes of it, and limits for one, by Linux's `/proc` and
//! its control groups (version 1).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// CPU time of the machine since its start, in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuTime {
    busy: u64,
    all: u64,
}

/// The limits of one process; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Limits {
    folders: Vec<PathBuf>,
}

// === impl CpuTime ===

impl CpuTime {
    pub(super) fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let ticks = line.split_whitespace().skip(1).take(8);
        let ticks: Vec<u64> = ticks.filter_map(|tick| tick.parse().ok()).collect();
        let all = ticks.iter().sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Self {
            busy: all - idle,
            all,
        }
    }

    /// The part of the machine that was busy since then, in percent.
    pub(super) fn busy_percent(self) -> u64 {
        let now = Self::now();
        (now.busy - self.busy) * 100 / (now.all - self.all).max(1)
    }
}

/// The most memory that a process had resident so far, in MiB.
pub(in super::super) fn peak_resident(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or_default() / 1024
}

/// CPU time of a process so far, in seconds.
pub(super) fn cpu_seconds(process: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // After the name of the program, which may contain spaces: user and system time are fields 14 and 15, in
    // hundredths.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u32 = ticks.filter_map(|tick| tick.parse::<u32>().ok()).sum();
    f64::from(ticks) / 100.0
}

// === impl Limits ===

impl Limits {
    /// Prepares limits of memory, in MiB, and of one CPU.
    ///
    /// # Errors
    /// When the control groups cannot be written.
    pub(super) fn new(memory: u64) -> io::Result<Self> {
        let name = format!("foretide-{}", std::process::id());
        let mut limits = Self {
            folders: Vec::new(),
        };
        let memory = (memory * 1024 * 1024).to_string();
        for (controller, file, value) in [
            ("memory", "memory.limit_in_bytes", memory.as_str()),
            ("cpu", "cpu.cfs_quota_us", "100000"),
        ] {
            let folder = Path::new("/sys/fs/cgroup").join(controller).join(&name);
            fs::create_dir_all(&folder)?;
            limits.folders.push(folder.clone());
            fs::write(folder.join(file), value)?;
        }
        Ok(limits)
    }

    /// Puts a process under the limits.
    pub(super) fn hold(&self, process: u32) -> io::Result<()> {
        for folder in &self.folders {
            fs::write(folder.join("cgroup.procs"), process.to_string())?;
        }
        Ok(())
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for folder in &self.folders {
            // Fails while the process still ends; an empty group costs nothing.
            drop(fs::remove_dir(folder));
        }
    }
}
