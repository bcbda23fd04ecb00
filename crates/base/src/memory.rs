//! The memory of this process: the limit of its cgroups, beyond which it is killed, and how much of it is in use.
//!
//! ```text
//! /proc/self/cgroup   read are, for the cgroup and each above it
//! 0::/pod/container   /sys/fs/cgroup/pod/container/memory.max ...
//! 4:memory:/pod       /sys/fs/cgroup/memory/pod/memory.limit_in_bytes ...
//! ```

mod copies;
mod fair_shares;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use copies::CopyBudget;
pub use copies::{Account, Keeper};
pub use fair_shares::{FairShares, Item};

/// Smallest value that means no limit: version 1 of cgroups has the largest number of whole pages.
const UNLIMITED: usize = 1 << 60;

/// The memory of a process that has a limit.
#[derive(Debug, Clone)]
pub struct Memory {
    limit: usize,
    resident: fn() -> usize,
    copies: Arc<CopyBudget>,
}

// === impl Memory ===

impl Memory {
    /// Memory of this many bytes, of which nothing is in use.
    pub fn unused(limit: usize) -> Self {
        Self::new(limit, || 0)
    }

    fn new(limit: usize, resident: fn() -> usize) -> Self {
        Self {
            limit,
            resident,
            copies: Arc::new(CopyBudget::within(limit)),
        }
    }

    /// The memory of this process, if it has a limit.
    pub(crate) fn of_process() -> Option<Self> {
        let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let limit = lowest_limit(&cgroups, |file| fs::read_to_string(file).ok())?;
        Some(Self::new(limit, resident_in_process))
    }

    /// The limit, in bytes.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Divides the memory among the copies of objects, forecasts and the history of the page, and logs the parts.
    pub fn divide(&self, page: usize) {
        let [copies, forecasts] = self.copies.set_aside(page);
        tracing::info!(
            limit_mib = self.limit >> 20,
            copies_mib = copies >> 20,
            forecasts_mib = forecasts >> 20,
            page_mib = page >> 20,
            "the memory limit was divided; copies and forecasts use what the other part leaves"
        );
    }

    /// Logs the part for copies of objects in a process without forecasts and page.
    pub fn log_undivided(&self) {
        tracing::info!(
            limit_mib = self.limit >> 20,
            copies_mib = self.copies.budget() >> 20,
            "the memory limit was read"
        );
    }

    /// The budget of copies of objects.
    pub const fn copies(&self) -> &Arc<CopyBudget> {
        &self.copies
    }

    /// The bytes that are resident now.
    pub fn resident(&self) -> usize {
        (self.resident)()
    }
}

/// The lowest limit of these cgroups, and of those above them.
fn lowest_limit(cgroups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<usize> {
    cgroups
        .lines()
        .flat_map(limit_files)
        .filter_map(|file| read(&file)?.trim().parse().ok())
        .filter(|limit| *limit < UNLIMITED)
        .min()
}

/// The files with the limits of a cgroup, and of those above it.
fn limit_files(cgroup: &str) -> Vec<PathBuf> {
    let mut fields = cgroup.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next(), fields.next().unwrap_or_default());
    let (root, file) = match controllers {
        Some("") => ("/sys/fs/cgroup", "memory.max"),
        Some("memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return Vec::new(),
    };
    let path = Path::new(path.trim_start_matches('/'));
    path.ancestors()
        .map(|path| Path::new(root).join(path).join(file))
        .collect()
}

fn resident_in_process() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    resident(&status).unwrap_or(0)
}

fn resident(status: &str) -> Option<usize> {
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    let kibibytes: usize = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_lowest_of_the_cgroup_and_those_above_it() {
        let files = [
            ("/sys/fs/cgroup/memory.max", "max\n"),
            ("/sys/fs/cgroup/pod/memory.max", "536870912\n"),
            ("/sys/fs/cgroup/pod/box/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/free/memory.max", "max\n"),
            ("/sys/fs/cgroup/odd/memory.max", "many\n"),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            (
                "/sys/fs/cgroup/memory/pod/memory.limit_in_bytes",
                "268435456\n",
            ),
        ];
        let read = |file: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == file);
            found.map(|(_, text)| (*text).to_owned())
        };
        for (cgroups, limit) in [
            ("0::/pod/box\n", Some(512 << 20)),
            ("0::/pod\n", Some(512 << 20)),
            ("0::/\n", None),
            ("0::/free/box\n", None),
            ("0::/odd\n", None),
            ("0::/../pod\n", None),
            // Version 1, in a container whose cgroup has another name outside; both versions.
            ("7:cpu:/pod\n4:memory:/kubepods/pod\n", None),
            ("4:memory:/pod\n0::/pod\n", Some(256 << 20)),
            ("", None),
            ("nonsense\n::\n", None),
        ] {
            assert_eq!(lowest_limit(cgroups, read), limit, "{cgroups}");
        }
    }

    #[test]
    fn what_is_resident_is_read_in_kibibytes() {
        let status = "Name:\tforetide\nVmHWM:\t  900 kB\nVmRSS:\t  673 kB\n";
        assert_eq!(resident(status), Some(673 * 1024));
        assert_eq!(resident("VmRSS:\tmany kB\n"), None);
        assert_eq!(resident("Name:\tforetide\n"), None);
    }
}
