//! The ledger of a fleet: every timer and stored estimate that rebalancing carries from one decision to the next.
//!
//! It is plain data that the caller stores, for example in status. An empty ledger means that budgets were never
//! assigned: the next decision assigns them, and running pods stay.
//!
//! Serialized, times are whole seconds since the epoch and default values are omitted:
//!
//! ```
//! use foretide_federate::Ledger;
//!
//! let text = r#"{"generation":3,"members":{"eu":{"min":1,"max":7,"written":7,"moved":1800000000}}}"#;
//! let ledger: Ledger = serde_json::from_str(text)?;
//! assert_eq!(ledger.members["eu"].max.get(), 7);
//! assert_eq!(serde_json::to_string(&ledger)?, text);
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp, fmt::serde::timestamp::second::required as second};
use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::candidate::{EffectivePreference, is_default};
use foretide_domain::{Replicas, remembered::Remembered};

/// The state of one fleet between two decisions: input and output of [`decide`](super::decide).
#[apply(
    _ => #[serde(skip_serializing_if = "is_default")],
    Option<Timestamp> => #[serde(with = "seconds")],
)]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ledger {
    /// The generation of the spec that was assigned last; absent before the first assignment.
    pub generation: Option<i64>,
    /// True if the last decision was only shown, so that no member was given its share.
    pub previewed: bool,
    /// The part of MAX that no member could take.
    pub unassigned: Replicas,
    /// Set while members may keep more than their new budget until others are ready.
    #[serde(flatten)]
    pub landing: Option<Landing>,
    /// The time at which headroom was redistributed last (R8).
    pub optimized: Option<Timestamp>,
    /// The time at which a tier was shrunk last (R9).
    pub shrunk: Option<Timestamp>,
    /// Since when more is placed than the fleet needs (R9).
    pub excess_since: Option<Timestamp>,
    /// Since when every awake member idles at its minimum (R10).
    pub idle_since: Option<Timestamp>,
    /// The replicas of the fleet when members began to take over the floor of one that is to sleep (R10); absent when
    /// none is. The replicas that they start for this do not count as replicas that a single autoscaler would keep.
    pub handover: Option<Replicas>,
    /// The time at which a member was woken last (R11).
    pub woken: Option<Timestamp>,
    /// The members by name.
    #[serde_with(skip_apply)]
    pub members: BTreeMap<String, Entry>,
}

/// The time that others may take to become ready before a budget that shrank is enforced.
pub const LANDING: SignedDuration = SignedDuration::from_secs(600);

/// The time in which members may keep more than their new budget until others are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    /// The time at which it ends, whether or not the others are ready.
    #[serde(rename = "landing", with = "second")]
    pub until: Timestamp,
    /// The replicas of the members with a share when it began, or the demand since then if that is larger: how many are
    /// enough while windows, policies or a missing metric hide the demand.
    ///
    /// It is stored because the current count includes replicas that were started to replace others: a goal that
    /// followed it would grow for as long as the landing lasts.
    #[serde(rename = "landingServed", default, skip_serializing_if = "is_default")]
    pub served: Replicas,
}

/// The state of one member between two decisions.
///
/// Fields that were renamed keep their former names when serialized, because a stored ledger must be read by the next
/// version.
#[apply(
    _ => #[serde(skip_serializing_if = "is_default")],
    Option<Timestamp> => #[serde(with = "seconds")],
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Entry {
    /// True if the member has a share.
    #[serde(rename = "tenure")]
    pub share_status: ShareStatus,
    /// The budget: the smallest count.
    #[serde_with(skip_apply)]
    pub min: Replicas,
    /// The budget: the largest count.
    #[serde_with(skip_apply)]
    pub max: Replicas,
    /// The largest count that was written for it: its budget, or more while others become ready.
    pub written: Replicas,
    /// The merged preferences when budgets were divided last: labels of a cluster may change, and with them the
    /// preferences that match it.
    #[serde(rename = "standing")]
    pub preference: Option<EffectivePreference>,
    /// The capacity when budgets were divided last; absent when it was unknown. Floors are divided by this value, so
    /// that an estimate that fluctuates moves nothing.
    pub capacity: Option<Replicas>,
    /// The weight when budgets were divided last.
    pub weight: u64,
    /// The position in the order of filling when budgets were divided last.
    pub rank: u32,
    /// The capacity that unschedulable pods proved.
    #[serde(rename = "mark")]
    pub backoff: Option<Backoff>,
    /// The time for which its demand counts as local: other members cannot serve it.
    pub local: Option<Span>,
    /// True if its autoscaler was kept from scaling down (R9).
    pub held: bool,
    /// The time at which its budget moved last.
    pub moved: Option<Timestamp>,
    /// The time at which R9 shrank it last.
    pub shrunk: Option<Timestamp>,
    /// Since when it needs more than its maximum.
    pub saturated_since: Option<Timestamp>,
    /// Since when it idles at its minimum (R7).
    pub idle_since: Option<Timestamp>,
    /// The time at which it was woken.
    pub woken: Option<Timestamp>,
    /// The time at which it was put to sleep.
    pub slept: Option<Timestamp>,
    /// The time for which it stays awake because it was needed soon after it was put to sleep.
    pub needed: Option<Span>,
    /// Since when it is healthy again after it had lost its share.
    pub recovered: Option<Timestamp>,
    /// Since when it has a `NoExecute` taint; the source of taints may not know their age after a restart.
    pub tainted: Option<Timestamp>,
}

impl Ledger {
    /// The members that [`decide`](super::decide) must be told about even if the hub's inventory no longer has them, as
    /// [`Missing`](super::Membership::Missing): all but those that are being drained, whose shares others have already.
    ///
    /// ```
    /// use foretide_federate::{Entry, Ledger, ShareStatus};
    ///
    /// let entry = |share_status| Entry { share_status, ..Entry::default() };
    /// let members = [
    ///     ("eu".to_owned(), entry(ShareStatus::Candidate)),
    ///     ("us".to_owned(), entry(ShareStatus::Draining)),
    /// ];
    /// let ledger = Ledger { members: members.into(), ..Ledger::default() };
    /// assert!(ledger.remaining().eq(["eu"]));
    /// ```
    pub fn remaining(&self) -> impl Iterator<Item = &str> {
        self.members
            .iter()
            .filter(|(_, entry)| entry.share_status != ShareStatus::Draining)
            .map(|(name, _)| name.as_str())
    }

    /// The same ledger after the wall clock was stepped by `step`: everything in it is as long ago as before.
    ///
    /// ```
    /// use foretide_federate::Ledger;
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let ledger = Ledger { woken: Some(Timestamp::UNIX_EPOCH), ..Ledger::default() };
    /// let step = SignedDuration::from_hours(1);
    /// assert_eq!(ledger.shifted(step).woken, Some(Timestamp::UNIX_EPOCH + step));
    /// ```
    #[must_use]
    pub fn shifted(mut self, step: SignedDuration) -> Self {
        self.for_each_time(|time| time.shift(step));
        self
    }

    /// The same ledger, if the clock was put back while no controller ran: what is ahead of `now` counts as of now.
    #[must_use]
    pub fn put_back(mut self, now: Timestamp) -> Self {
        self.for_each_time(|time| time.put_back(now));
        self
    }

    /// The same ledger after `pause`, in which nothing was observed: what has to last for a while before anything is
    /// moved did not last during the pause, and a landing goes on for longer. Cooldowns go on, because time passes for the
    /// members too.
    ///
    /// ```
    /// use foretide_federate::Ledger;
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let since = Some(Timestamp::UNIX_EPOCH);
    /// let pause = SignedDuration::from_mins(5);
    /// let ledger = Ledger { idle_since: since, woken: since, ..Ledger::default() }.resumed(pause);
    /// assert_eq!(ledger.idle_since, Some(Timestamp::UNIX_EPOCH + pause));
    /// assert_eq!(ledger.woken, since);
    /// ```
    #[must_use]
    pub fn resumed(mut self, pause: SignedDuration) -> Self {
        if let Some(Landing { until, .. }) = &mut self.landing {
            // Without the hub, the members that are to take over did not get their floors.
            Remembered::Since(until).shift(pause);
        }
        let fleet = [&mut self.excess_since, &mut self.idle_since];
        let members = self.members.values_mut().flat_map(|entry| {
            [
                &mut entry.saturated_since,
                &mut entry.idle_since,
                &mut entry.recovered,
            ]
        });
        for since in fleet.into_iter().chain(members).flatten() {
            Remembered::Since(since).shift(pause);
        }
        self
    }

    /// Changes every time. Each field is named, so that a new one cannot be forgotten.
    fn for_each_time(&mut self, change: impl Fn(Remembered<'_>)) {
        let Self {
            generation: _,
            previewed: _,
            unassigned: _,
            landing,
            optimized,
            shrunk,
            excess_since,
            idle_since,
            handover: _,
            woken,
            members,
        } = self;
        if let Some(Landing { until, served: _ }) = landing {
            change(Remembered::Until {
                at: until,
                span: Some(LANDING),
            });
        }
        let since = [optimized, shrunk, excess_since, idle_since, woken];
        for at in since.into_iter().flatten() {
            change(Remembered::Since(at));
        }
        for entry in members.values_mut() {
            entry.for_each_time(&change);
        }
    }
}

impl Entry {
    fn for_each_time(&mut self, change: impl Fn(Remembered<'_>)) {
        let Self {
            share_status: _,
            min: _,
            max: _,
            written: _,
            preference: _,
            capacity: _,
            weight: _,
            rank: _,
            backoff,
            local,
            held: _,
            moved,
            shrunk,
            saturated_since,
            idle_since,
            woken,
            slept,
            needed,
            recovered,
            tainted,
        } = self;
        let backoff = backoff.as_mut().map(|backoff| &mut backoff.span);
        let spans = [backoff, local.as_mut(), needed.as_mut()];
        for Span { until, seconds } in spans.into_iter().flatten() {
            change(Remembered::Until {
                at: until,
                span: Some(SignedDuration::from_secs(i64::from(*seconds))),
            });
        }
        let since = [
            moved,
            shrunk,
            saturated_since,
            idle_since,
            woken,
            slept,
            recovered,
            tainted,
        ];
        for at in since.into_iter().flatten() {
            change(Remembered::Since(at));
        }
    }

    /// The share status when budgets were divided last.
    ///
    /// ```
    /// use foretide_federate::{Entry, ShareStatus};
    ///
    /// assert!(Entry::default().has_share());
    /// let failed = Entry { share_status: ShareStatus::Failed, ..Entry::default() };
    /// assert!(!failed.has_share());
    /// ```
    pub fn has_share(&self) -> bool {
        matches!(
            self.share_status,
            ShareStatus::Candidate | ShareStatus::Pinned
        )
    }
}

/// The claim of a member to a share; a number when serialized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "u32", into = "u32")]
pub enum ShareStatus {
    /// A candidate; its budget may be zero.
    #[default]
    Candidate = 0,
    /// A candidate that could not be changed when budgets were divided last: it kept its share.
    Pinned = 1,
    /// A member that lost its share to the others.
    Failed = 2,
    /// No candidate any more: it is drained, then deleted.
    Draining = 3,
}

/// The capacity that unschedulable pods proved, which overrides the estimate, and how long it holds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "BackoffFields", into = "BackoffFields")]
pub struct Backoff {
    /// The number of pods that were placed.
    pub placed: Replicas,
    /// The estimate at that time; absent when there was none. A larger estimate later means that nodes were added.
    pub claimed: Option<Replicas>,
    /// The time for which it holds. An expired one is kept, because the next one holds twice as long.
    pub span: Span,
}

/// A time that doubles with every repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SpanFields", into = "SpanFields")]
pub struct Span {
    /// The time at which it ends.
    pub until: Timestamp,
    /// The duration, in seconds.
    pub seconds: u32,
}

impl Span {
    /// The next span: of `first` seconds, or twice as long as `before`, up to `longest`.
    pub(crate) fn next(before: Option<Self>, now: Timestamp, first: u32, longest: u32) -> Self {
        let seconds = before.map_or(first, |span| span.seconds.saturating_mul(2).min(longest));
        let until = now.checked_add(SignedDuration::from_secs(i64::from(seconds)));
        Self {
            until: until.unwrap_or(Timestamp::MAX),
            seconds,
        }
    }
}

/// `until` in seconds since the epoch, `seconds`.
type SpanFields = (i64, u32);
/// `placed`, `claimed`, then the fields of the span.
type BackoffFields = (Replicas, Option<Replicas>, i64, u32);

impl From<u32> for ShareStatus {
    fn from(number: u32) -> Self {
        match number {
            1 => Self::Pinned,
            2 => Self::Failed,
            3 => Self::Draining,
            _ => Self::Candidate,
        }
    }
}

impl From<ShareStatus> for u32 {
    fn from(status: ShareStatus) -> Self {
        status as Self
    }
}

impl From<SpanFields> for Span {
    fn from((until, seconds): SpanFields) -> Self {
        // A time out of range counts as over.
        let until = Timestamp::from_second(until).unwrap_or(Timestamp::MIN);
        Self { until, seconds }
    }
}

impl From<Span> for SpanFields {
    fn from(span: Span) -> Self {
        (span.until.as_second(), span.seconds)
    }
}

impl From<BackoffFields> for Backoff {
    fn from((placed, claimed, until, seconds): BackoffFields) -> Self {
        Self {
            placed,
            claimed,
            span: Span::from((until, seconds)),
        }
    }
}

impl From<Backoff> for BackoffFields {
    fn from(backoff: Backoff) -> Self {
        let (until, seconds) = backoff.span.into();
        (backoff.placed, backoff.claimed, until, seconds)
    }
}

/// An optional time as whole seconds since the epoch; one out of range is absent.
mod seconds {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde calls it with a reference")]
    pub fn serialize<S: Serializer>(
        at: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        at.map(Timestamp::as_second).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        let second = Option::<i64>::deserialize(deserializer)?;
        Ok(second.and_then(|second| Timestamp::from_second(second).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of [`example`].
    const TEXT: &str = concat!(
        r#"{"generation":3,"previewed":true,"unassigned":2,"landing":10,"landingServed":6,"optimized":11,"shrunk":12,"#,
        r#""excessSince":13,"idleSince":14,"handover":5,"woken":15,"members":{"#,
        r#""m1":{"tenure":2,"min":1,"max":7,"written":8,"#,
        r#""standing":{"weight":5,"priority":-2,"lo":1,"hi":9,"elastic":true},"#,
        r#""capacity":9,"weight":3,"rank":2,"mark":[4,6,900,600],"local":[900,600],"held":true,"#,
        r#""moved":1,"shrunk":2,"saturatedSince":3,"idleSince":4,"woken":5,"slept":6,"#,
        r#""needed":[900,600],"recovered":7,"tainted":8},"#,
        r#""m2":{"min":0,"max":0}}}"#
    );

    /// A ledger in which every field has a value.
    fn example() -> Ledger {
        let at = |second| Timestamp::from_second(second).unwrap();
        let n = Replicas::new;
        let span = Span {
            until: at(900),
            seconds: 600,
        };
        let full = Entry {
            share_status: ShareStatus::Failed,
            min: n(1),
            max: n(7),
            written: n(8),
            preference: Some(EffectivePreference {
                weight: Some(5),
                priority: Some(-2),
                min: n(1),
                max: n(9),
                elastic: true,
            }),
            capacity: Some(n(9)),
            weight: 3,
            rank: 2,
            backoff: Some(Backoff {
                placed: n(4),
                claimed: Some(n(6)),
                span,
            }),
            local: Some(span),
            held: true,
            moved: Some(at(1)),
            shrunk: Some(at(2)),
            saturated_since: Some(at(3)),
            idle_since: Some(at(4)),
            woken: Some(at(5)),
            slept: Some(at(6)),
            needed: Some(span),
            recovered: Some(at(7)),
            tainted: Some(at(8)),
        };
        let members = [("m1".to_owned(), full), ("m2".to_owned(), Entry::default())];
        Ledger {
            generation: Some(3),
            previewed: true,
            unassigned: n(2),
            landing: Some(Landing {
                until: at(10),
                served: n(6),
            }),
            optimized: Some(at(11)),
            shrunk: Some(at(12)),
            excess_since: Some(at(13)),
            idle_since: Some(at(14)),
            handover: Some(n(5)),
            woken: Some(at(15)),
            members: members.into_iter().collect(),
        }
    }

    fn read(text: &str) -> Option<Ledger> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn the_text_of_a_ledger_never_changes_and_is_read_back() {
        let text = serde_json::to_string(&example()).unwrap();
        assert_eq!(text, TEXT);
        assert_eq!(read(TEXT), Some(example()));
        let empty = serde_json::to_string(&Ledger::default()).unwrap();
        assert_eq!(empty, r#"{"members":{}}"#);
        assert_eq!(read("{}"), Some(Ledger::default()));
    }

    /// The numbers of a text whose times are all above a million, and whose other numbers are all below.
    fn times(ledger: &Ledger) -> Vec<i64> {
        let text = serde_json::to_string(ledger).unwrap();
        let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '-');
        let numbers = numbers.filter_map(|number| number.parse().ok());
        numbers.filter(|number: &i64| *number > 1_000_000).collect()
    }

    /// [`example`] with every time this much later.
    fn example_at(second: i64) -> Ledger {
        example().shifted(SignedDuration::from_secs(second))
    }

    #[test]
    fn a_step_of_the_clock_moves_every_time_in_a_ledger_and_nothing_else() {
        let later = times(&example_at(1_800_000_000));
        assert_eq!(later.len(), 17, "{later:?}");
        for step in [3_600, -3_600] {
            let moved = times(&example_at(1_800_000_000 + step));
            let want: Vec<_> = later.iter().map(|second| second + step).collect();
            assert_eq!(moved, want, "{step}");
        }
        let back = example_at(1_800_000_000).shifted(SignedDuration::from_secs(-1_800_000_000));
        assert_eq!(back, example());
    }

    #[test]
    fn what_is_ahead_after_the_clock_was_put_back_counts_as_of_now() {
        let hour = 3_600;
        let now = 1_800_000_000;
        let ledger = example_at(now + hour).put_back(Timestamp::from_second(now).unwrap());
        let spans = now + 600;
        for time in times(&ledger) {
            assert!([now, spans].contains(&time), "{time}");
        }
        let past = example_at(now - hour);
        assert_eq!(
            past.clone().put_back(Timestamp::from_second(now).unwrap()),
            past
        );
    }

    #[test]
    fn a_pause_does_not_count_for_what_has_to_last_and_counts_for_cooldowns() {
        let resumed = example().resumed(SignedDuration::from_secs(100));
        let entry = resumed.members.get("m1").unwrap();
        let second = |at: Option<Timestamp>| at.unwrap().as_second();
        let lasting = [
            (resumed.excess_since, 113),
            (resumed.idle_since, 114),
            (entry.saturated_since, 103),
            (entry.idle_since, 104),
            (entry.recovered, 107),
        ];
        for (at, want) in lasting {
            assert_eq!(second(at), want);
        }
        let others = [
            (resumed.optimized, 11),
            (entry.moved, 1),
            (entry.tainted, 8),
        ];
        for (at, want) in others {
            assert_eq!(second(at), want);
        }
    }

    #[test]
    fn every_share_status_has_its_number_and_an_unknown_number_is_a_candidate() {
        use ShareStatus::{Candidate, Draining, Failed, Pinned};
        for (number, status) in [(0, Candidate), (1, Pinned), (2, Failed), (3, Draining)] {
            assert_eq!(
                (u32::from(status), ShareStatus::from(number)),
                (number, status)
            );
        }
        assert_eq!(ShareStatus::from(4), Candidate);
    }

    #[test]
    fn omitted_fields_have_their_defaults() {
        let ledger = read(r#"{"landing": 10, "members": {"m1": {"min": 1, "max": 7}}}"#).unwrap();
        let begun = Landing {
            until: Timestamp::from_second(10).unwrap(),
            served: Replicas::ZERO,
        };
        assert_eq!(ledger.landing, Some(begun));
        let entry = Entry {
            min: Replicas::new(1),
            max: Replicas::new(7),
            ..Entry::default()
        };
        assert_eq!(ledger.members.get("m1"), Some(&entry));
    }

    #[test]
    fn null_a_time_out_of_range_and_an_unknown_field_are_ignored() {
        let text = r#"{"generation": null, "landing": 9223372036854775807, "woken": 9223372036854775807, "later": [1]}"#;
        assert_eq!(read(text), Some(Ledger::default()));
    }

    #[test]
    fn what_is_no_ledger_is_not_read() {
        for text in ["nonsense", "[]", r#"{"members": {"m1": {"min": -1}}}"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
