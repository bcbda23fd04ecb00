//! A time zone, and the rule by which civil times become instants in it.
//!
//! Zones come from the database that is compiled in, not from the system's copy, so that every machine gives the same
//! answer.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

/// Longest zone name read, in characters.
pub const MAX_ZONE_CHARS: usize = 64;

/// A time zone by name.
///
/// # Source
/// IANA time zone database as bundled with `jiff`.
#[derive(Debug, Clone)]
pub struct Zone {
    name: Box<str>,
    rules: TimeZone,
    origin: Origin,
}

/// The kind of text that a zone was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Named,
    Empty,
    Local,
}

/// Reason why a zone name is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// More than [`MAX_ZONE_CHARS`] characters.
    #[error("time zone name has {chars} characters: expected at most {MAX_ZONE_CHARS}")]
    TooLong {
        /// Characters found.
        chars: usize,
    },
    /// No such name in the database.
    #[error(
        "time zone `{name}` is unknown: expected an IANA name such as Europe/Berlin, UTC, Local, \
         or nothing for UTC"
    )]
    Unknown {
        /// The name as written.
        name: String,
    },
}

/// Number of times that a zone's clocks show a civil time: one, none or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ambiguity {
    /// The clocks show it once.
    Unambiguous,
    /// The clocks skip it; it resolves to the first instant after the gap.
    Gap,
    /// The clocks show it twice; it resolves to the first pass.
    Fold,
}

// === impl Zone ===

impl Zone {
    /// Universal time.
    pub fn utc() -> Self {
        Self {
            name: "UTC".into(),
            rules: TimeZone::UTC,
            origin: Origin::Named,
        }
    }

    /// An instant as the zone's clocks show it, with the offset.
    pub(super) fn local(&self, at: Timestamp) -> String {
        at.to_zoned(self.rules.clone())
            .strftime("%Y-%m-%d %H:%M%:z")
            .to_string()
    }

    /// Reads a `timezone` field: a name, `""` for UTC, `Local` for the zone given.
    ///
    /// # Errors
    /// [`ZoneError`] when the name is too long or unknown.
    ///
    /// ```
    /// use foretide_domain::cron::{Zone, ZoneError};
    ///
    /// let berlin = Zone::parse("Europe/Berlin", &Zone::utc())?;
    /// let local = Zone::parse("Local", &berlin)?;
    /// assert_eq!((local.name(), local.is_local()), ("Europe/Berlin", true));
    /// let assumed = Zone::parse("", &berlin)?;
    /// assert_eq!((assumed.name(), assumed.is_assumed()), ("UTC", true));
    /// assert!(matches!(Zone::parse("Mars/Olympus", &berlin), Err(ZoneError::Unknown { .. })));
    /// # Ok::<(), ZoneError>(())
    /// ```
    pub fn parse(name: &str, local: &Self) -> Result<Self, ZoneError> {
        match name {
            "" => Ok(Self {
                origin: Origin::Empty,
                ..Self::utc()
            }),
            "Local" => Ok(Self {
                origin: Origin::Local,
                ..local.clone()
            }),
            _ => Self::named(name),
        }
    }

    fn named(name: &str) -> Result<Self, ZoneError> {
        let chars = name.chars().count();
        if chars > MAX_ZONE_CHARS {
            return Err(ZoneError::TooLong { chars });
        }
        let rules = TimeZoneDatabase::bundled()
            .get(name)
            .ok()
            // `Etc/Unknown` is a name of the database, and behaves as UTC.
            .filter(|rules| !rules.is_unknown())
            .ok_or_else(|| ZoneError::Unknown {
                name: name.to_owned(),
            })?;
        // Names are found in any case; the spelling of the database is the one that is shown.
        let name = rules.iana_name().unwrap_or(name).into();
        Ok(Self {
            name,
            rules,
            origin: Origin::Named,
        })
    }

    /// The zone's IANA name; `UTC` for an empty field, the actual zone for `Local`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the field was empty, so that UTC was assumed.
    pub fn is_assumed(&self) -> bool {
        self.origin == Origin::Empty
    }

    /// Returns true if the field was `Local`.
    pub fn is_local(&self) -> bool {
        self.origin == Origin::Local
    }

    /// Rules of the zone, for printing times in it.
    pub fn rules(&self) -> &TimeZone {
        &self.rules
    }

    /// Civil time that the clocks of the zone show at `t`.
    pub(super) fn civil(&self, t: Timestamp) -> DateTime {
        self.rules.to_datetime(t)
    }

    /// Lead of the zone's clocks over those of another zone at `t`.
    pub(super) fn ahead_of(&self, other: &Self, t: Timestamp) -> SignedDuration {
        let (own, others) = (self.rules.to_offset(t), other.rules.to_offset(t));
        SignedDuration::from_secs(i64::from(own.seconds()) - i64::from(others.seconds()))
    }

    /// Instant of the next change of the clocks after `t`.
    pub(super) fn next_change(&self, t: Timestamp) -> Option<Timestamp> {
        Some(self.rules.following(t).next()?.timestamp())
    }

    /// Instant of the last change of the clocks at or before `t`; if they were turned back, the instant by which they
    /// had shown each repeated time again.
    pub(super) fn last_change(&self, t: Timestamp) -> Option<Timestamp> {
        let nanosecond = SignedDuration::from_nanos(1);
        let change = self
            .rules
            .preceding(t.checked_add(nanosecond).ok()?)
            .next()?;
        let before = change.timestamp().checked_sub(nanosecond).ok()?;
        let back = self.rules.to_offset(before).seconds() - change.offset().seconds();
        let repeated = SignedDuration::from_secs(i64::from(back.max(0)));
        change.timestamp().checked_add(repeated).ok()
    }

    /// The instant of a civil time; never earlier for a later civil time.
    ///
    /// Gap: the first instant after it. Overlap: the first pass.
    ///
    /// `None` beyond the years an instant can have.
    ///
    /// ```
    /// use foretide_domain::cron::{Ambiguity, Zone};
    /// use jiff::civil::date;
    ///
    /// let berlin = Zone::parse("Europe/Berlin", &Zone::utc())?;
    /// // On 29 March 2026 the clocks go from 02:00 to 03:00.
    /// let skipped = berlin.resolve(date(2026, 3, 29).at(2, 30, 0, 0));
    /// assert_eq!(skipped, Some(("2026-03-29T01:00:00Z".parse()?, Ambiguity::Gap)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resolve(&self, civil: DateTime) -> Option<(Timestamp, Ambiguity)> {
        match self.rules.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => {
                Some((at(offset, civil)?, Ambiguity::Unambiguous))
            }
            AmbiguousOffset::Fold { before, .. } => Some((at(before, civil)?, Ambiguity::Fold)),
            AmbiguousOffset::Gap { before, after } => {
                Some((self.gap_end(civil, before, after)?, Ambiguity::Gap))
            }
        }
    }

    /// The transition that skips `civil`.
    ///
    /// A civil time within a gap, read with the offset after the gap, lies before the transition by at
    /// most the gap's length.
    fn gap_end(&self, civil: DateTime, before: Offset, after: Offset) -> Option<Timestamp> {
        let earlier = at(after, civil)?;
        let latest = at(before, civil)?;
        self.rules
            .following(earlier)
            .take_while(|transition| transition.timestamp() <= latest)
            .find(|transition| transition.offset() == after)
            .map(|transition| transition.timestamp())
            .or(Some(latest))
    }

    /// The latest civil time that can have been resolved to `t` or before.
    ///
    /// In the second pass of an overlap the first pass has already shown times ahead of the clock.
    pub(super) fn latest_civil(&self, t: Timestamp) -> DateTime {
        let civil = self.civil(t);
        match self.rules.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Fold { before, after } if self.rules.to_offset(t) == after => {
                let ahead =
                    SignedDuration::from_secs(i64::from(before.seconds() - after.seconds()));
                civil.checked_add(ahead).unwrap_or(civil)
            }
            _ => civil,
        }
    }
}

impl PartialEq for Zone {
    /// Zones are equal when their rules are, whatever their names.
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
    }
}

impl Eq for Zone {}

fn at(offset: Offset, civil: DateTime) -> Option<Timestamp> {
    offset.to_timestamp(civil).ok()
}
