//! The whole log of the processes of a cluster, and checks of its content.

use std::{
    io::{self, Write},
    mem::take,
    sync::{Arc, Mutex},
};

use foretide_base::telemetry::log_to;
use tracing::dispatcher::{DefaultGuard, set_default};

/// Part of every credential that the processes are given.
pub(crate) const SECRET: &str = "token-of-";

/// The log of the present thread.
pub(crate) struct Log {
    records: Records,
    _guard: DefaultGuard,
}

/// The records of a log.
#[derive(Clone, Default)]
pub(crate) struct Records(Arc<Mutex<Vec<Vec<u8>>>>);

// === impl Log ===

impl Log {
    /// Begins the log of a seed: everything for one in three, and warnings for the others, because traces take a tenth
    /// of a seed's time.
    pub(crate) fn begin(seed: u64) -> Self {
        let records = Records::default();
        let written = records.clone();
        let levels = if seed.is_multiple_of(3) {
            "foretide=trace,warn"
        } else {
            "warn"
        };
        let log = log_to(levels, move || written.clone()).unwrap();
        Self {
            records,
            _guard: set_default(&log),
        }
    }

    /// Checks that each record is one line, without control sequences and credentials.
    pub(crate) fn check(&self) -> Result<(), String> {
        for text in self.records.take() {
            let line = text.strip_suffix('\n').unwrap_or(&text);
            let is_reversed = |c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if line.contains(char::is_control) || line.contains(is_reversed) {
                return Err(format!("log: a record is not shown as it is: {line:?}"));
            }
            if line.contains(SECRET) {
                return Err(format!("log: a credential is shown: {line}"));
            }
        }
        Ok(())
    }
}

// === impl Records ===

impl Records {
    /// Returns the records so far, and forgets them.
    pub(crate) fn take(&self) -> Vec<String> {
        let records = take(&mut *self.0.lock().unwrap()).into_iter();
        records
            .map(|record| String::from_utf8(record).unwrap())
            .collect()
    }
}

impl Write for Records {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push(record.to_vec());
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
