//! The controller's clock: the only place that reads the wall clock and the monotonic clocks.
//!
//! The shipped binary runs on [`Clock::system`], and a host of a simulation on [`Clock::simulated`], whose time is that of
//! tokio, which tests pause. [`Clock::standing_at`] moves only when a test moves it. All clocks that run are as fast as
//! tokio's: spans of one and times of another machine need no conversion.
//!
//! A clock has two readings. [`Clock::now`] is the time of day, which may step. [`Clock::monotonic`] never steps and only
//! measures spans within this process: a lease is judged by it, because the wall clocks of two machines need not agree.
//!
//! A [`ClockReading`] has both; from two of them follows whether the wall clock was stepped in between. A [`Contact`] is a
//! time at which another machine was heard, with both readings of the clock that it was read on.

use std::{
    ops::Add,
    sync::{Arc, LazyLock},
    time::Duration,
};

use derive_where::derive_where;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use tokio::{sync::Notify, time::Instant};

use crate::opaque::Opaque;

/// A reading of the monotonic clock: the time since an arbitrary origin that is the same for all readings of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Monotonic(Duration);

/// A smaller difference between the two clocks is no step: they run apart a little while the wall clock is adjusted.
const SMALLEST_STEP: SignedDuration = SignedDuration::from_secs(2);

/// One reading of the wall clock and of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    wall: Timestamp,
    monotonic: Monotonic,
}

/// A time at which another machine was heard, on the clock that its age is measured by.
#[derive(Debug, Clone)]
#[derive_where(PartialEq, Eq)]
pub struct Contact {
    heard: ClockReading,
    #[derive_where(skip)]
    clock: Clock,
}

/// The wall clock, or one that can be set; clones share the setting.
#[derive(Debug, Clone)]
pub struct Clock(Option<Arc<Settable>>);

#[derive(Debug)]
struct Settable {
    setting: RwLock<Setting>,
    set: Notify,
    /// In a simulation, called between the two monotonic readings, so that the process can be stopped there.
    interruption: Option<Interruption>,
}

type Interruption = Opaque<Box<dyn Fn() + Send + Sync>>;

/// The state of a settable clock when it was last set.
#[derive(Debug, Clone, Copy)]
struct Setting {
    /// Time of the setting on the clock of tokio, which tests can pause.
    since: Instant,
    /// Wall-clock time at the setting.
    shown: Timestamp,
    /// Monotonic reading at the setting.
    elapsed: Monotonic,
    /// The clock runs at the pace of tokio's time; without it, the time stands still until the next setting.
    runs: bool,
}

/// The pace of a line of the log that many causes can write: one in a minute.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogPace(Option<Monotonic>);

// === impl Monotonic ===

impl Monotonic {
    /// The reading this long after the origin.
    pub const fn after_origin(span: Duration) -> Self {
        Self(span)
    }

    /// The time from `earlier` to this reading; zero if that is the later one.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

// === impl LogPace ===

impl LogPace {
    /// Returns whether a line may be written now, and counts it as written.
    pub fn admits(&mut self, now: Monotonic) -> bool {
        let is_due = self
            .0
            .is_none_or(|at| now.since(at) >= Duration::from_mins(1));
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

impl Add<Duration> for Monotonic {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

// === impl ClockReading ===

impl ClockReading {
    /// A reading of these two values.
    pub const fn new(wall: Timestamp, monotonic: Monotonic) -> Self {
        Self { wall, monotonic }
    }

    /// The time of day.
    pub const fn wall(&self) -> Timestamp {
        self.wall
    }

    /// The reading of the monotonic clock.
    pub const fn monotonic(&self) -> Monotonic {
        self.monotonic
    }

    /// The time that passed since an earlier reading, whatever the wall clock did.
    pub fn passed_since(&self, earlier: Self) -> SignedDuration {
        let passed = self.monotonic.since(earlier.monotonic);
        SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX)
    }

    /// By how much the wall clock was stepped since an earlier reading, which is positive for a step ahead:
    /// `(wall now - wall then) - (monotonic now - monotonic then)`; zero up to two seconds.
    pub fn step_since(&self, earlier: Self) -> SignedDuration {
        let shown = self.wall.duration_since(earlier.wall);
        let step = shown.saturating_sub(self.passed_since(earlier));
        if step.abs() > SMALLEST_STEP {
            step
        } else {
            SignedDuration::ZERO
        }
    }

    /// Returns the time of an earlier monotonic reading on the wall clock as it is set now.
    pub fn wall_at(&self, earlier: Monotonic) -> Timestamp {
        let earlier = Self::new(self.wall, earlier);
        let passed = self.passed_since(earlier);
        self.wall.saturating_sub(passed).unwrap_or(self.wall)
    }
}

// === impl Contact ===

impl Contact {
    /// Time of the contact by the wall clock at that moment, for display.
    pub fn at(&self) -> Timestamp {
        self.heard.wall
    }

    /// Monotonic reading at the contact.
    pub fn monotonic(&self) -> Monotonic {
        self.heard.monotonic
    }

    /// Returns the time since the contact; steps of the wall clock do not change it.
    pub fn age(&self) -> SignedDuration {
        self.clock.reading().passed_since(self.heard)
    }

    /// Returns a contact at this time of the wall clock and at this monotonic reading of the system.
    pub fn of(at: Timestamp, monotonic: Monotonic) -> Self {
        let (heard, clock) = (ClockReading::new(at, monotonic), Clock::system());
        Self { heard, clock }
    }

    /// Returns a contact `span` ago, by the clock of the system.
    pub fn ago(span: Duration) -> Self {
        let now = Clock::system().reading();
        let then = Monotonic(now.monotonic.0.saturating_sub(span));
        Self::of(now.wall - span, then)
    }
}

// === impl Clock ===

impl Clock {
    /// The wall clock.
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that reads `start` until it is set or advanced.
    pub fn standing_at(start: Timestamp) -> Self {
        Self::settable(start, false, None)
    }

    /// The clock of a host in a simulation: it reads `start` now, and runs as the time of tokio.
    pub fn simulated(start: Timestamp) -> Self {
        Self::interrupted(start, || {})
    }

    /// Like [`Self::simulated`], for a process that can be stopped while it reads its monotonic clocks: `interruption`
    /// is called between two readings.
    pub fn interrupted(start: Timestamp, interruption: impl Fn() + Send + Sync + 'static) -> Self {
        Self::settable(start, true, Some(Opaque(Box::new(interruption))))
    }

    fn settable(start: Timestamp, runs: bool, interruption: Option<Interruption>) -> Self {
        Self(Some(Arc::new(Settable {
            setting: RwLock::new(Setting::new(start, Monotonic::default(), runs)),
            set: Notify::new(),
            interruption,
        })))
    }

    /// Sets a settable clock, and wakes all sleepers; the wall clock cannot be set.
    ///
    /// # Guarantees
    /// As with a step of the wall clock, the monotonic reading does not move.
    pub fn set(&self, to: Timestamp) {
        self.change(|setting, now| Setting::new(to, setting.monotonic_at(now), setting.runs));
    }

    /// Lets `span` pass at once on a settable clock, on both its readings, and wakes all sleepers.
    pub fn advance(&self, span: Duration) {
        self.change(|setting, now| {
            let shown = setting.at(now).saturating_add(span);
            let elapsed = setting.monotonic_at(now) + span;
            Setting::new(shown.unwrap_or(Timestamp::MAX), elapsed, setting.runs)
        });
    }

    fn change(&self, to: impl FnOnce(Setting, Instant) -> Setting) {
        if let Some(settable) = &self.0 {
            let mut setting = settable.setting.write();
            *setting = to(*setting, tokio_now());
            settable.set.notify_waiters();
        }
    }

    /// The time on this clock.
    pub fn now(&self) -> Timestamp {
        match self.setting() {
            None => wall_now(),
            Some(setting) => setting.at(tokio_now()),
        }
    }

    /// The monotonic reading of this clock.
    ///
    /// # Guarantees
    /// The reading never goes back, and no step of the wall clock moves it. On Linux it includes the time for which the
    /// machine was suspended. A virtual machine that its host pauses may not notice: actions that must not rely on it
    /// carry the version of the object that they were decided from.
    pub fn monotonic(&self) -> Monotonic {
        let Some(settable) = &self.0 else {
            return monotonic_now();
        };
        let read = || settable.setting.read().monotonic_at(tokio_now());
        // Read twice, as the two clocks of the system are, so that a simulation can stop the process in between.
        later(
            || {
                let total = read();
                if let Some(interruption) = &settable.interruption {
                    (interruption.0)();
                }
                total
            },
            read,
        )
    }

    /// Both readings of this clock.
    pub fn reading(&self) -> ClockReading {
        match self.setting() {
            None => ClockReading::new(wall_now(), monotonic_now()),
            Some(setting) => {
                let now = tokio_now();
                ClockReading::new(setting.at(now), setting.monotonic_at(now))
            }
        }
    }

    /// Returns a contact with a machine that is heard now.
    pub fn contact(&self) -> Contact {
        Contact {
            heard: self.reading(),
            clock: self.clone(),
        }
    }

    /// Waits for `span` of this clock, or until it is set.
    pub async fn sleep(&self, span: SignedDuration) {
        let runs = self.setting().is_none_or(|setting| setting.runs);
        // A negative span has passed.
        let span = Duration::try_from(span).unwrap_or_default();
        // On a clock that stands, only setting it ends a sleep, except one for no time at all.
        let longest = if runs || span.is_zero() {
            span
        } else {
            Duration::MAX
        };
        let wait = tokio::time::sleep(longest);
        match &self.0 {
            None => wait.await,
            Some(settable) => tokio::select! {
                biased;
                () = wait => {}
                () = settable.set.notified() => {}
            },
        }
    }

    fn setting(&self) -> Option<Setting> {
        self.0.as_ref().map(|settable| *settable.setting.read())
    }
}

// === impl Setting ===

impl Setting {
    fn new(shown: Timestamp, elapsed: Monotonic, runs: bool) -> Self {
        Self {
            since: tokio_now(),
            shown,
            elapsed,
            runs,
        }
    }

    fn at(&self, now: Instant) -> Timestamp {
        let passed = SignedDuration::try_from(self.passed(now));
        self.shown
            .saturating_add(passed.unwrap_or(SignedDuration::MAX))
            .unwrap_or(self.shown)
    }

    fn monotonic_at(&self, now: Instant) -> Monotonic {
        self.elapsed + self.passed(now)
    }

    /// The time that passed on this clock since it was set.
    fn passed(&self, now: Instant) -> Duration {
        if self.runs {
            now.saturating_duration_since(self.since)
        } else {
            Duration::ZERO
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one reading of the wall clock"
)]
fn wall_now() -> Timestamp {
    Timestamp::now()
}

/// First reading of the clocks of the system: a day, so that there are readings before the start of the process.
const ORIGIN_READING: Monotonic = Monotonic(Duration::from_hours(24));

/// The larger progress of two clocks since the first reading of this process: the one that `Instant` reads stands still
/// while the machine is suspended, and the time since boot does not.
fn monotonic_now() -> Monotonic {
    static ORIGIN: LazyLock<(std::time::Instant, Option<Duration>)> =
        LazyLock::new(|| (instant_now(), since_boot()));
    let (origin, boot) = *ORIGIN;
    later(
        || {
            let total = boot.and_then(|boot| since_boot()?.checked_sub(boot));
            ORIGIN_READING + total.unwrap_or_default()
        },
        || ORIGIN_READING + tokio_now().into_std().saturating_duration_since(origin),
    )
}

/// The later reading of two clocks, of which a process that is stopped while it reads may get an old one of `total`.
fn later(total: impl FnOnce() -> Monotonic, awake: impl FnOnce() -> Monotonic) -> Monotonic {
    // `total` is read first: if the process is stopped in between, `awake` shows the time of the stop.
    let total = total();
    awake().max(total)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one reading of the monotonic clock of the system"
)]
fn instant_now() -> std::time::Instant {
    std::time::Instant::now()
}

/// The monotonic clock of tokio, which tests can pause.
#[expect(
    clippy::disallowed_methods,
    reason = "the one reading of the monotonic clock of tokio"
)]
fn tokio_now() -> Instant {
    Instant::now()
}

/// `CLOCK_BOOTTIME`; absent on other systems. No file is opened for it, because a process that has no descriptor left
/// must not go back in time.
#[cfg(target_os = "linux")]
fn since_boot() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};

    clock_gettime(ClockId::Boottime).try_into().ok()
}

#[cfg(not(target_os = "linux"))]
const fn since_boot() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    const HOUR: Duration = Duration::from_hours(1);

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_stands_moves_only_when_it_is_moved() {
        let clock = Clock::standing_at(at(5_000));
        let before = clock.reading();
        tokio::time::advance(HOUR).await;
        assert_eq!(clock.reading(), before);
        let sleeping = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(SignedDuration::from_mins(1)).await }
        });
        tokio::time::advance(HOUR).await;
        assert!(!sleeping.is_finished());
        clock.advance(HOUR);
        sleeping.await.unwrap();
        assert_eq!(clock.now(), at(8_600));
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_runs_exactly_as_the_time_of_tokio() {
        let clock = Clock::simulated(at(0));
        for milliseconds in [1, 21, 999, 86_400_123] {
            let (before, span) = (clock.reading(), Duration::from_millis(milliseconds));
            tokio::time::sleep(span).await;
            assert_eq!(clock.now(), before.wall + span);
            assert_eq!(clock.monotonic(), before.monotonic + span);
        }
    }

    #[test]
    fn setting_the_wall_time_does_not_move_the_monotonic_reading() {
        let clock = Clock::standing_at(at(10_000));
        clock.advance(Duration::from_secs(7));
        assert_eq!(clock.now(), at(10_007));
        let before = clock.monotonic();
        for step in [-3_600, 3_600] {
            clock.set(at(10_000 + step));
            assert_eq!(clock.monotonic(), before, "{step}");
        }
        clock.advance(HOUR);
        assert_eq!(clock.monotonic().since(before), HOUR);
        assert_eq!(clock.now(), at(10_000 + 7_200));
    }

    #[test]
    fn a_step_of_the_wall_clock_is_what_it_moved_beyond_the_time_that_passed() {
        let hour = 3_600;
        for (wall, passed, step) in [
            (15, 15, 0),
            (17, 15, 0),
            (18, 15, 3),
            (13, 15, 0),
            (12, 15, -3),
            (15 + hour, 15, hour),
            (15 - hour, 15, -hour),
            // A pause: both clocks advance.
            (615, 615, 0),
        ] {
            let clock = Clock::standing_at(at(0));
            let before = clock.reading();
            clock.advance(Duration::from_secs(passed));
            clock.set(at(wall));
            let now = clock.reading();
            assert_eq!(now.wall(), at(wall));
            assert_eq!(now.step_since(before).as_secs(), step, "{wall} {passed}");
            let passed = SignedDuration::from_secs(passed.cast_signed());
            assert_eq!(now.passed_since(before), passed);
        }
    }

    #[test]
    fn a_contact_has_an_age_whatever_the_wall_clock_does() {
        let clock = Clock::standing_at(at(10_000));
        let contact = clock.contact();
        clock.advance(Duration::from_secs(50));
        for step in [-3_600, 3_600] {
            clock.set(at(10_000 + step));
            assert_eq!(contact.age().as_secs(), 50, "{step}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_monotonic_reading_of_the_system_advances_and_never_goes_back() {
        let clock = Clock::system();
        let before = clock.monotonic();
        assert!(clock.monotonic() >= before);
        tokio::time::advance(HOUR).await;
        let passed = clock.monotonic().since(before);
        // Real time that passed before the advance is not counted twice.
        assert!(passed > HOUR / 2, "{passed:?}");
        assert_eq!(before.since(clock.monotonic()), Duration::ZERO);
    }

    #[test]
    fn a_stop_after_the_time_since_boot_was_read_shows() {
        let passed = Cell::new(Duration::ZERO);
        let total = || {
            let read = passed.get();
            passed.set(HOUR);
            Monotonic(read)
        };
        let awake = || Monotonic(passed.get());
        assert_eq!(later(total, awake), Monotonic(HOUR));
    }

    /// Clocks of some virtual systems differ by a little.
    #[cfg(target_os = "linux")]
    const TOLERANCE: Duration = Duration::from_millis(10);

    #[cfg(target_os = "linux")]
    #[test]
    fn the_time_since_boot_never_goes_back_and_advances_like_instant() {
        let outer = instant_now();
        let mut readings = vec![since_boot().unwrap()];
        let inner = instant_now();
        while inner.elapsed() < TOLERANCE * 5 {
            readings.push(since_boot().unwrap());
        }
        let least = inner.elapsed();
        readings.push(since_boot().unwrap());
        let most = outer.elapsed();
        assert!(readings.is_sorted());
        let passed = readings[readings.len() - 1].saturating_sub(readings[0]);
        let is_alike = least <= passed + TOLERANCE && passed <= most + TOLERANCE;
        assert!(is_alike, "expected {least:?} to {most:?}, found {passed:?}");
    }

    /// Runs in a process of its own, because other tests open files.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_time_since_boot_is_read_without_a_file_descriptor() {
        let inner = "clock::tests::the_time_since_boot_is_read_at_the_limit_of_open_files";
        let test = std::process::Command::new("/proc/self/exe")
            .args(["--exact", inner, "--ignored"])
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&test.stdout);
        assert!(shown.contains("1 passed"), "{shown}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[ignore = "lowers a limit of the whole process; another test runs it"]
    fn the_time_since_boot_is_read_at_the_limit_of_open_files() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

        let none = Rlimit {
            current: Some(0),
            ..getrlimit(Resource::Nofile)
        };
        setrlimit(Resource::Nofile, none).unwrap();
        assert!(std::fs::File::open("/proc/uptime").is_err());
        assert!(since_boot().is_some());
    }

    #[test]
    fn a_clone_shares_the_setting_of_the_original() {
        let clock = Clock::simulated(at(0));
        let clone = clock.clone();
        clock.set(at(86_400));
        assert!(clone.now() >= at(86_400));
    }
}
