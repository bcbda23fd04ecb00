//! The permanent conformance check: our observed lane compared with the child HPA's own recommendations.
//!
//! Every sync records an expectation: how many replicas the metrics ask for at this count and with these values. When
//! the child's status shows a pass over the same inputs, its result is compared with ours. Two things cannot be seen
//! from outside: when exactly the child had its pass, and which of our readings it also made. The expected result is
//! therefore computed for every possibility; a result that none of them explains is a disagreement, and one that only
//! some explain is not compared. Nothing is compared until both logs cover the time that a result depends on; this wait
//! starts again when the child has read something that we have not. The check changes nothing.

mod expected;

use std::{collections::VecDeque, sync::Arc};

use foretide_domain::{
    ReplicaBounds, Replicas,
    autoscale::Decision,
    hpa::{Behavior, Direction, Hpa, Log, MetricValue, Recommendation, Settings, Step, normalize},
    observation::Pod,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use self::expected::{ReportedPass, bounds, fingerprint, undisturbed};
use crate::ports::HpaView;

/// How many different expectations are kept.
const EXPECTATIONS: usize = 8;
/// How far apart a pass of the child and the sync that sees the same may be: its own default period.
const SLACK: SignedDuration = SignedDuration::from_secs(15);

/// What one sync saw of one workload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sync<'a> {
    /// When.
    pub(super) at: Timestamp,
    /// `spec.replicas`.
    pub(super) current: Replicas,
    /// The value of every metric; `None` if one could not be read.
    pub(super) values: Option<&'a [MetricValue]>,
    /// What the metrics ask for, if they were computed.
    pub(super) recommended: Option<Replicas>,
    /// The pods, sorted by name.
    pub(super) pods: &'a [Arc<Pod>],
    /// How many samples of pods the metrics lack, all together.
    pub(super) missing: u32,
    /// The changes of the scale so far.
    pub(super) changes: &'a Log,
}

/// What the result depends on besides the inputs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules<'a> {
    /// The user's behavior.
    pub(super) behavior: Option<&'a Behavior>,
    /// The controller's flags.
    pub(super) settings: &'a Settings,
}

/// What the child is expected to compute its result from if it reads the same values.
#[derive(Debug, Clone, PartialEq)]
struct Expectation {
    step: Step,
    values: Vec<MetricValue>,
    /// The child's bounds as the sync saw them.
    bounds: ReplicaBounds,
    /// The syncs that saw it, first and last.
    first: Timestamp,
    last: Timestamp,
    /// The changes of the scale before it, for rate limits.
    changes: Log,
}

/// A reading of ours that the child may also have made.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Read {
    at: Timestamp,
    replicas: Replicas,
    /// Whether the child's status has shown that it did.
    shared: bool,
}

/// A pass of the child, as its status shows it.
struct Pass<'a> {
    reported: &'a ReportedPass,
    /// Whether its status has changed since the last sync.
    is_new: bool,
    /// Whether the pods have not changed for as long as the status may be late, so that it read what we read.
    is_undisturbed: bool,
}

/// The expectations about one child, and what is known of its log.
#[derive(Debug, Clone, Default)]
pub(super) struct Conformance {
    /// The child's UID.
    child: String,
    /// Fingerprint of the child's metrics and behavior.
    spec: u64,
    /// From when on our log and the child's cover the time that a result depends on.
    comparable_from: Option<Timestamp>,
    /// Oldest first.
    expected: VecDeque<Expectation>,
    /// Oldest first, as far back as a result depends on them.
    reads: VecDeque<Read>,
    /// The pods, and the samples that they lacked, in the last sync.
    pods: Vec<Arc<Pod>>,
    missing: u32,
    /// When a change of the pods was seen that the child did not make, or samples of pods came or went. The average may be
    /// the same with them, but not the count.
    disturbed: Option<Timestamp>,
    /// The child's status in the last sync, and whether it has been compared: each status counts once.
    status: Value,
    compared: bool,
    /// What the last sync found, unless this one shows that its pods were out of date.
    disagreement: Option<String>,
}

// === impl Sync ===

impl<'a> Sync<'a> {
    /// The sync of a decision; `values` are its proposals' values, parallel to the metrics.
    pub(super) fn of(
        decision: &'a Decision,
        values: Option<&'a [MetricValue]>,
        pods: &'a [Arc<Pod>],
        changes: &'a Log,
    ) -> Self {
        let observed = decision.observed.as_ref();
        let proposals = observed.into_iter().flat_map(|pass| &pass.proposals);
        Self {
            at: decision.at,
            current: decision.current,
            values,
            recommended: observed.and_then(|pass| pass.recommended),
            pods,
            missing: proposals.flatten().map(|metric| metric.basis.missing).sum(),
            changes,
        }
    }
}

/// The values of a decision's metrics; `None` unless there are some and all could be read.
pub(super) fn values(decision: &Decision) -> Option<Vec<MetricValue>> {
    let proposals = &decision.observed.as_ref()?.proposals;
    let values: Option<Vec<_>> = proposals
        .iter()
        .map(|proposal| proposal.as_ref().ok().map(|p| p.value))
        .collect();
    values.filter(|values| !values.is_empty())
}

// === impl Rules ===

impl Rules<'_> {
    /// How far back a result depends on the past.
    fn reach(&self) -> SignedDuration {
        match self.behavior {
            None => self.settings.downscale_stabilization,
            Some(behavior) => [Direction::Up, Direction::Down]
                .into_iter()
                .map(|way| {
                    behavior
                        .window(way, self.settings)
                        .max(behavior.longest_period(way))
                })
                .max()
                .unwrap_or_default(),
        }
    }

    fn slack(&self) -> SignedDuration {
        SLACK.min(self.reach() / 3)
    }
}

// === impl Conformance ===

impl Conformance {
    /// Records one sync; returns whether the child agreed, if its result could be compared. A disagreement is returned by
    /// the sync after it.
    pub(super) fn watch(
        &mut self,
        sync: &Sync<'_>,
        child: Option<&HpaView>,
        rules: Rules<'_>,
    ) -> Option<bool> {
        let Some(child) = child else {
            *self = Self::default();
            return None;
        };
        let spec = fingerprint(child);
        if self.child != child.uid || self.spec != spec {
            *self = Self {
                child: child.uid.clone(),
                spec,
                ..Self::default()
            };
            self.wait_for_log(sync.at, rules);
        }
        let reported = ReportedPass::of(child);
        let pods = std::mem::replace(&mut self.pods, sync.pods.to_vec());
        let missing = std::mem::replace(&mut self.missing, sync.missing);
        let disagreement = self.disagreement.take();
        if missing != sync.missing || !undisturbed(&pods, sync.pods, reported.as_ref()) {
            self.disturbed = Some(sync.at);
        } else if let Some(message) = disagreement {
            tracing::warn!(child = %self.child, "{message}");
            return Some(false);
        }
        self.expect(sync, child, rules);
        let is_new = self.status != child.status;
        if is_new {
            self.status = child.status.clone();
            self.compared = false;
        }
        let reported = reported?;
        let is_long_ago = |then| sync.at.duration_since(then) >= rules.slack();
        let pass = Pass {
            reported: &reported,
            is_new,
            is_undisturbed: is_new && self.disturbed.is_none_or(is_long_ago),
        };
        let verdict = self.judge(&pass, sync.at, rules);
        self.compared |= verdict.is_some() || self.disagreement.is_some();
        verdict
    }

    /// The child may have read what we have not: its log is not comparable until that is out of reach.
    fn wait_for_log(&mut self, now: Timestamp, rules: Rules<'_>) {
        self.comparable_from = now.checked_add(rules.reach() + rules.slack()).ok();
    }

    fn expect(&mut self, sync: &Sync<'_>, child: &HpaView, rules: Rules<'_>) {
        let oldest = sync
            .at
            .checked_sub(rules.reach() + rules.slack() * 2)
            .unwrap_or(sync.at);
        self.reads.retain(|read| read.at >= oldest);
        let Some(expectation) = Expectation::of(sync, child) else {
            return;
        };
        let replicas = expectation.step.recommended;
        self.reads.push_back(Read {
            at: sync.at,
            replicas,
            shared: false,
        });
        match self
            .expected
            .back_mut()
            .filter(|last| last.is_like(&expectation))
        {
            Some(last) => last.last = sync.at,
            None => self.expected.push_back(expectation),
        }
        while self.expected.len() > EXPECTATIONS {
            self.expected.pop_front();
        }
    }

    fn judge(&mut self, pass: &Pass<'_>, now: Timestamp, rules: Rules<'_>) -> Option<bool> {
        let Pass {
            reported,
            is_new,
            is_undisturbed,
        } = *pass;
        // Of the same inputs as the pass.
        let matching: Vec<_> = self
            .expected
            .iter()
            .filter(|e| e.is_met_by(reported))
            .cloned()
            .collect();
        // The child has read something that we have not, and remembers it for a while.
        if matching.is_empty() && is_new {
            self.wait_for_log(now, rules);
        }
        // After pods changed the same inputs may give another count, and status does not say which one the child got.
        let is_unambiguous = matching
            .iter()
            .all(|e| Some(e.step) == matching.first().map(|first| first.step));
        for read in self.reads.iter_mut().filter(|_| is_unambiguous) {
            read.shared |= matching
                .iter()
                .any(|e| e.first <= read.at && read.at <= e.last);
        }
        let is_comparable = self.comparable_from.is_some_and(|from| from <= now);
        if self.compared || !is_comparable || matching.is_empty() {
            return None;
        }
        // The pass may have come before or after the last change of the bounds.
        let expected_ranges = || {
            matching.iter().flat_map(|expectation| {
                [expectation.bounds, reported.bounds]
                    .map(|bounds| self.range(expectation, bounds, now, rules))
            })
        };
        let desired = reported.desired;
        if expected_ranges().any(|range| range == (desired, desired)) {
            return Some(true);
        }
        let is_explained = expected_ranges().any(|(low, high)| low <= desired && desired <= high);
        if is_explained || !is_undisturbed {
            return None;
        }
        let expected: Vec<_> = expected_ranges().collect();
        // Not returned yet: the child may know of a pod what only the next sync shows us.
        self.disagreement = Some(format!(
            "the child HPA disagrees with the expected recommendation: it reports {reported:?}, and {expected:?} was expected"
        ));
        None
    }

    /// The lowest and the highest result that the child may give: with every reading of ours in its log or only those
    /// it has shown, its pass a little earlier or a little later.
    fn range(
        &self,
        expectation: &Expectation,
        bounds: ReplicaBounds,
        now: Timestamp,
        rules: Rules<'_>,
    ) -> (Replicas, Replicas) {
        let hpa = Hpa {
            bounds,
            // What they ask for is in the step.
            metrics: &[],
            behavior: rules.behavior,
        };
        let slack = rules.slack();
        let instants = [now.checked_sub(slack), Ok(now), now.checked_add(slack)];
        let logs = [true, false].map(|shared_only| self.log(expectation, shared_only));
        let results = instants.into_iter().flatten().flat_map(|at| {
            let answer = move |log: &Log| {
                normalize(&hpa, expectation.step, log.clone(), rules.settings, at).desired
            };
            logs.each_ref().map(answer)
        });
        let answers: Vec<_> = results.collect();
        let low = answers.iter().min().copied().unwrap_or_default();
        (low, answers.into_iter().max().unwrap_or_default())
    }

    fn log(&self, expectation: &Expectation, shared_only: bool) -> Log {
        let known = self.reads.iter().filter(|read| read.at <= expectation.last);
        let chosen = known.filter(|read| read.shared || !shared_only);
        let entries = chosen.map(|read| Recommendation {
            at: read.at,
            replicas: read.replicas,
            mirrored: true,
        });
        Log {
            recommendations: Some(entries.collect()),
            ..expectation.changes.clone()
        }
    }
}

// === impl Expectation ===

impl Expectation {
    fn of(sync: &Sync<'_>, child: &HpaView) -> Option<Self> {
        let bounds = bounds(child)?;
        // Outside its bounds the child reads no metrics.
        if !bounds.contains(sync.current) {
            return None;
        }
        let step = Step {
            current: sync.current,
            recommended: sync.recommended?,
        };
        let values = sync.values?.to_vec();
        let changes = Log {
            recommendations: None,
            ..sync.changes.clone()
        };
        Some(Self {
            step,
            values,
            bounds,
            first: sync.at,
            last: sync.at,
            changes,
        })
    }

    fn is_like(&self, other: &Self) -> bool {
        self.step == other.step && self.values == other.values && self.bounds == other.bounds
    }

    /// Whether the child's result is from these inputs.
    fn is_met_by(&self, reported: &ReportedPass) -> bool {
        self.step.current == reported.current && self.values == reported.values
    }
}

#[cfg(test)]
mod tests {
    use foretide_domain::observation::Phase;
    use serde_json::json;

    use super::*;

    const PLAIN: Option<&Behavior> = None;

    fn n(replicas: u32) -> Replicas {
        Replicas::new(replicas)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn value(average: i64) -> Vec<MetricValue> {
        vec![MetricValue {
            average_value: Some(average * 1000),
            ..MetricValue::default()
        }]
    }

    fn pod(name: &str) -> Arc<Pod> {
        Arc::new(Pod {
            name: name.into(),
            phase: Phase::Running,
            deleting: false,
            created: None,
            ready: None,
            started: None,
            containers: Arc::new([]),
            pod_level_requests: None,
        })
    }

    /// A child with bounds 1 to 50 whose last pass saw `current` and an average of `average`.
    fn child((current, desired): (u32, u32), average: i64) -> HpaView {
        let current_value = json!({ "current": { "averageValue": average.to_string() } });
        HpaView {
            namespace: "shop".into(),
            name: "ehpa-web".into(),
            uid: "child".into(),
            resource_version: String::new(),
            controller: None,
            labels: Value::Null,
            annotations: Value::Null,
            target: foretide_domain::ScaleTarget {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                name: "web".into(),
                namespace: "shop".into(),
            },
            spec: json!({ "minReplicas": 1, "maxReplicas": 50 }),
            status: json!({
                "currentReplicas": current, "desiredReplicas": desired,
                "currentMetrics": [{ "type": "Pods", "pods": current_value }],
            }),
            generation: Some(1),
            last_scale: None,
        }
    }

    /// A check beside a child without `behavior` and a window of five minutes.
    #[derive(Default)]
    struct Watch {
        conformance: Conformance,
        pods: Vec<Arc<Pod>>,
        missing: u32,
    }

    impl Watch {
        /// A sync at `second` that sees `current` and an average of `average`, asking for `recommended`; and one more if it
        /// found a disagreement.
        fn sync(&mut self, second: i64, seen: (u32, i64, u32), child: &HpaView) -> Option<bool> {
            let verdict = self.sync_once(second, seen, child);
            verdict.or_else(|| {
                let is_doubted = self.conformance.disagreement.is_some();
                let confirmed = is_doubted.then(|| self.sync_once(second, seen, child));
                confirmed.flatten()
            })
        }

        fn sync_once(
            &mut self,
            second: i64,
            (current, average, recommended): (u32, i64, u32),
            child: &HpaView,
        ) -> Option<bool> {
            let (values, changes, settings) = (value(average), Log::default(), Settings::default());
            let sync = Sync {
                at: at(second),
                current: n(current),
                values: Some(&values),
                recommended: Some(n(recommended)),
                pods: &self.pods,
                missing: self.missing,
                changes: &changes,
            };
            self.conformance.watch(
                &sync,
                Some(child),
                Rules {
                    behavior: PLAIN,
                    settings: &settings,
                },
            )
        }

        /// At rest with 4 replicas until both logs are whole; then the clock reads 400.
        fn settled() -> Self {
            let mut watch = Self {
                pods: vec![pod("a"), pod("b")],
                ..Self::default()
            };
            let verdicts: Vec<_> = (0..26)
                .filter_map(|i| watch.sync(i * 15, (4, 10, 4), &child((4, 4), 10)))
                .collect();
            assert_eq!(verdicts, [true], "one status is compared once");
            watch
        }
    }

    #[test]
    fn nothing_is_compared_before_both_logs_are_whole() {
        let mut watch = Watch::default();
        let verdicts = (0..=300).step_by(15);
        let mut verdicts =
            verdicts.filter_map(|second| watch.sync(second, (4, 10, 4), &child((4, 9), 10)));
        assert_eq!(verdicts.next(), None);
    }

    #[test]
    fn an_answer_to_the_same_reading_agrees_or_not() {
        for (answer, verdict) in [(6, Some(true)), (5, Some(false)), (4, Some(false))] {
            let mut watch = Watch::settled();
            assert_eq!(watch.sync(400, (4, 15, 6), &child((4, 4), 10)), None);
            let answered = child((4, answer), 15);
            // The scale has moved on by the time we see the answer.
            assert_eq!(
                watch.sync(415, (answer, 15, 6), &answered),
                verdict,
                "{answer}"
            );
            assert_eq!(
                watch.sync(430, (answer, 15, 6), &answered),
                None,
                "compared already"
            );
        }
    }

    #[test]
    fn a_held_scale_down_is_expected_and_an_early_one_is_not() {
        for (answer, verdict) in [(4, Some(true)), (2, Some(false))] {
            let mut watch = Watch::settled();
            watch.sync(400, (4, 5, 2), &child((4, 4), 10));
            assert_eq!(
                watch.sync(415, (answer, 5, 2), &child((4, answer), 5)),
                verdict
            );
        }
    }

    #[test]
    fn around_the_end_of_a_window_either_answer_is_possible() {
        for answer in [4, 2] {
            let mut watch = Watch::settled();
            for second in (390..=660).step_by(15) {
                watch.sync(second, (4, 5, 2), &child((4, 4), 5));
            }
            // The last 4 was read at 375, 300 s before.
            assert_eq!(
                watch.sync(675, (4, 6, 2), &child((4, answer), 6)),
                None,
                "{answer}"
            );
        }
        let mut watch = Watch::settled();
        for second in (390..=660).step_by(15) {
            watch.sync(second, (4, 5, 2), &child((4, 4), 5));
        }
        assert_eq!(
            watch.sync(675, (4, 6, 2), &child((4, 7), 6)),
            Some(false),
            "no log explains 7"
        );
    }

    #[test]
    fn a_reading_that_we_have_not_made_makes_the_child_a_stranger_for_a_window() {
        let mut watch = Watch::settled();
        assert_eq!(watch.sync(400, (4, 10, 4), &child((4, 20), 50)), None);
        let wrong = child((20, 30), 11);
        for second in (415..=690).step_by(15) {
            assert_eq!(watch.sync(second, (20, 11, 20), &wrong), None, "{second}");
        }
        assert_eq!(
            watch.sync(730, (20, 10, 20), &child((20, 20), 10)),
            Some(true)
        );
    }

    #[test]
    fn a_reading_that_only_we_have_made_may_or_may_not_hold_the_child() {
        for (answer, verdict) in [(4, None), (8, None), (2, Some(false))] {
            let mut watch = Watch::settled();
            // A peak between two passes of the child.
            watch.sync(400, (4, 20, 8), &child((4, 4), 10));
            watch.sync(401, (4, 11, 4), &child((4, 4), 10));
            assert_eq!(
                watch.sync(415, (4, 11, 4), &child((4, answer), 11)),
                verdict,
                "{answer}"
            );
        }
    }

    #[test]
    fn of_two_counts_for_the_same_inputs_the_child_may_have_made_either() {
        let mut watch = Watch::settled();
        watch.sync(400, (4, 20, 8), &child((4, 4), 10));
        watch.sync(401, (4, 20, 6), &child((4, 4), 10));
        assert_eq!(
            watch.sync(415, (6, 20, 6), &child((4, 6), 20)),
            None,
            "the 8 may hold it or not"
        );
        let mut watch = Watch::settled();
        watch.sync(400, (4, 20, 8), &child((4, 4), 10));
        watch.sync(401, (4, 20, 6), &child((4, 4), 10));
        assert_eq!(watch.sync(415, (5, 20, 6), &child((4, 5), 20)), Some(false));
    }

    #[test]
    fn pods_that_changed_in_between_excuse_an_answer() {
        let mut watch = Watch::settled();
        watch.sync(400, (4, 15, 6), &child((4, 4), 10));
        watch.pods.push(pod("c"));
        assert_eq!(watch.sync(415, (4, 15, 6), &child((4, 4), 15)), None);
    }

    #[test]
    fn pods_that_changed_a_moment_ago_excuse_an_answer_too() {
        let mut watch = Watch::settled();
        watch.pods.push(pod("c"));
        assert_eq!(watch.sync(400, (4, 10, 4), &child((4, 4), 10)), None);
        let late = child((4, 6), 10);
        assert_eq!(watch.sync(401, (4, 10, 4), &late), None);
        assert_eq!(watch.sync(416, (4, 10, 4), &late), None, "it is not fresh");
        assert_eq!(watch.sync(431, (4, 10, 4), &child((4, 7), 10)), Some(false));
    }

    #[test]
    fn pods_whose_change_is_heard_only_after_the_answer_excuse_it() {
        let mut watch = Watch::settled();
        let answer = child((4, 7), 10);
        assert_eq!(watch.sync_once(400, (4, 10, 4), &answer), None);
        watch.pods.pop();
        assert_eq!(watch.sync_once(415, (4, 10, 4), &answer), None);
        assert_eq!(watch.sync_once(430, (4, 10, 4), &answer), None);
    }

    #[test]
    fn samples_that_arrive_in_between_excuse_an_answer() {
        let mut watch = Watch::settled();
        watch.missing = 1;
        watch.sync(400, (4, 15, 4), &child((4, 4), 10));
        watch.sync(416, (4, 15, 4), &child((4, 4), 15));
        // The child had the fourth sample already, which is like the others.
        watch.missing = 0;
        assert_eq!(watch.sync(431, (6, 15, 6), &child((4, 6), 15)), None);
    }

    #[test]
    fn pods_that_the_answer_made_excuse_nothing() {
        let mut watch = Watch::settled();
        watch.sync(400, (4, 15, 6), &child((4, 4), 10));
        watch.pods.push(pod("c"));
        assert_eq!(watch.sync(415, (5, 15, 6), &child((4, 5), 15)), Some(false));
    }

    #[test]
    fn a_pass_without_metrics_says_nothing_and_hides_nothing() {
        let mut watch = Watch::settled();
        let mut blind = child((4, 6), 0);
        blind.status["currentMetrics"] = Value::Null;
        assert_eq!(watch.sync(400, (4, 15, 6), &blind), None);
        assert_eq!(watch.sync(415, (4, 15, 6), &child((4, 6), 15)), Some(true));
    }

    #[test]
    fn another_child_begins_afresh() {
        let mut watch = Watch::settled();
        let other = HpaView {
            uid: "other".into(),
            ..child((4, 9), 10)
        };
        assert_eq!(watch.sync(400, (4, 10, 4), &other), None);
    }

    #[test]
    fn a_minimum_that_was_changed_meanwhile_explains_either_answer() {
        for (answer, verdict) in [(12, true), (6, true), (9, false)] {
            let mut watch = Watch::settled();
            let bounded = |min: u32| HpaView {
                spec: json!({ "minReplicas": min, "maxReplicas": 50 }),
                ..child((12, answer), 5)
            };
            for second in (400..=800).step_by(15) {
                watch.sync(
                    second,
                    (12, 6, 6),
                    &HpaView {
                        status: child((12, 12), 6).status,
                        ..bounded(12)
                    },
                );
            }
            watch.sync(
                801,
                (12, 5, 6),
                &HpaView {
                    status: child((12, 12), 6).status,
                    ..bounded(12)
                },
            );
            let verdict = Some(verdict);
            assert_eq!(
                watch.sync(815, (answer, 5, 6), &bounded(1)),
                verdict,
                "{answer}"
            );
        }
    }

    #[test]
    fn other_metrics_begin_afresh() {
        let mut watch = Watch::settled();
        let mut other = child((4, 9), 10);
        other.spec["metrics"] = json!([{ "type": "Pods" }]);
        assert_eq!(watch.sync(400, (4, 10, 4), &other), None);
    }
}
