//! Observations of the members that count, merged into one observation of one workload.
//!
//! Counts are sums; pods, usage and samples are named `member/pod`, so that equal names never collide. A total without
//! the part of a member is unavailable, never partial.

use std::{collections::BTreeMap, sync::Arc};

use foretide_domain::{
    Observation, Replicas, Scale,
    demand::is_available,
    forecast::{ForecastReading, Predicted},
    hpa::{MetricSpec, Target},
    observation::{Cause, Container, Measured, Pod, Reading, Unavailable},
};
use foretide_models::DemandBounds;
use jiff::Timestamp;

use super::{item::FleetItem, observation::Present};
use crate::{
    forecaster::{SeriesKey, forecasts::Forecasts},
    observe::{ForecastSeries, WorkloadObservation},
};

/// The members of a fleet that count, to be merged.
#[derive(Debug, Clone, Copy)]
pub struct Members<'a> {
    pub item: &'a FleetItem,
    /// The members that were seen, by name.
    pub present: &'a [(&'a str, &'a Present)],
    /// Replicas in members that do not answer.
    pub unreachable: Replicas,
    /// The readings from the hub, by position in the spec's metrics.
    pub hub: &'a BTreeMap<usize, Reading>,
}

// === impl Members ===

impl Members<'_> {
    /// The observation as of one workload.
    pub fn merged(&self, forecasts: &Forecasts, now: Timestamp) -> WorkloadObservation {
        let mut pods = Vec::new();
        for (member, present) in self.present {
            let own = &present.observed.workload.observation.pods;
            pods.extend(own.iter().map(|pod| named(member, pod)));
        }
        let [spec, status] = [
            sum_over(self.present, |seen| seen.scale.spec),
            sum_over(self.present, |seen| seen.scale.status),
        ]
        .map(|seen| self.unreachable.saturating_add(seen));
        let template = self
            .present
            .iter()
            .find_map(|(_, present)| present.observed.workload.template.clone());
        WorkloadObservation {
            forecasts: self.forecasts(forecasts, &pods, template.as_deref(), now),
            observation: Observation {
                scale: Scale { spec, status },
                unseen: self.unreachable,
                undelivered: sum_over(self.present, |seen| seen.undelivered),
                owned: sum_over(self.present, |seen| seen.owned),
                readings: self.readings(),
                pods,
            },
            template,
        }
    }

    /// The forecasts for the whole: those of its own series, or the sum of those for each member.
    fn forecasts(
        &self,
        forecasts: &Forecasts,
        pods: &[Arc<Pod>],
        template: Option<&[Container]>,
        now: Timestamp,
    ) -> Vec<ForecastReading> {
        let spec = self.item.fleet_spec();
        let uid = self.item.autoscaler.uid();
        let series = ForecastSeries {
            forecasts,
            uid,
            workload: &spec.workload,
        };
        let mut whole = series.readings(pods, template, now);
        if spec.course.divides {
            return whole;
        }
        let mut of_each = Vec::new();
        for (member, _) in self.present {
            let uid = &SeriesKey::of_member(uid, member);
            of_each.push(ForecastSeries { uid, ..series }.readings(pods, template, now));
        }
        for (position, reading) in whole.iter_mut().enumerate() {
            let of_members = of_each.iter().filter_map(|all| all.get(position));
            // What is measured once for the fleet is forecast once, too.
            if let Some(sum) = of_members.cloned().reduce(added)
                && !spec.scopes.contains(&sum.name)
            {
                *reading = sum;
            }
        }
        whole
    }

    /// One reading per metric of the spec, in its order.
    fn readings(&self) -> Vec<Reading> {
        let spec = self.item.fleet_spec();
        let mut column = 0;
        let mut readings = Vec::new();
        for (position, metric) in spec.workload.metrics.iter().enumerate() {
            if !spec.is_read_in_members(metric) {
                let read = self.hub.get(&position);
                readings.push(read.map_or_else(|| Err(not_read()), Reading::clone));
                continue;
            }
            readings.push(match together(metric, self.present, column) {
                Ok(Measured::Total(_)) if self.unreachable > Replicas::ZERO => Err(partial()),
                reading => reading,
            });
            column += 1;
        }
        readings
    }
}

/// Two forecasts as that of their sum, also of their bounds; where one is missing, so is the sum.
fn added(one: ForecastReading, other: ForecastReading) -> ForecastReading {
    let outcome = match (one.outcome, other.outcome) {
        (Ok(one), Ok(other)) => Ok(Predicted {
            value: one.value + other.value,
            bounds: DemandBounds {
                raise: one.bounds.raise + other.bounds.raise,
                hold: one.bounds.hold + other.bounds.hold,
            },
            ..one
        }),
        (Err(refused), _) | (_, Err(refused)) => Err(refused),
    };
    ForecastReading { outcome, ..one }
}

/// Sum of a count over all members that were seen.
fn sum_over(present: &[(&str, &Present)], of: fn(&Observation) -> Replicas) -> Replicas {
    present.iter().fold(Replicas::ZERO, |sum, (_, present)| {
        sum.saturating_add(of(&present.observed.workload.observation))
    })
}

fn named(member: &str, pod: &Arc<Pod>) -> Arc<Pod> {
    Arc::new(Pod {
        name: in_member(member, &pod.name),
        ..Pod::clone(pod)
    })
}

fn in_member(member: &str, pod: &str) -> Arc<str> {
    format!("{member}/{pod}").into()
}

fn partial() -> Unavailable {
    let why = "the total is incomplete, because a member does not answer";
    Unavailable::new(Cause::NotRead, why)
}

fn not_read() -> Unavailable {
    Unavailable::new(Cause::NotRead, "the metric was not read in this sync")
}

/// The readings of all members of one metric as one. The pods of a member without a reading have no sample; a total
/// without the part of a member is unavailable.
fn together(metric: &MetricSpec, parts: &[(&str, &Present)], column: usize) -> Reading {
    let mut all: Option<Measured> = None;
    let mut ready = Vec::new();
    let mut missing: Option<Unavailable> = None;
    for (member, present) in parts {
        // Without pods it has no demand, so no total lacks it.
        if present.is_idle() {
            continue;
        }
        match present.observed.workload.observation.readings.get(column) {
            Some(Ok(measured)) => {
                all = Some(joined(all, member, measured));
                ready.push(ready_pods(present));
            }
            Some(Err(unavailable)) => missing = Some(in_words(member, unavailable)),
            None => missing = Some(not_read()),
        }
    }
    match (all, missing) {
        (Some(Measured::Total(_)) | None, Some(missing)) => Err(missing),
        (Some(Measured::Total(values)), None) => {
            Ok(Measured::Total(as_one_object(metric, values, &ready)))
        }
        (Some(all), _) => Ok(all),
        (None, None) => Err(Unavailable::new(
            Cause::NoPods,
            "no reachable member has a pod of the workload",
        )),
    }
}

fn ready_pods(present: &Present) -> i128 {
    let pods = &present.observed.workload.observation.pods;
    pods.iter().map(|pod| i128::from(is_available(pod))).sum()
}

/// Merges the values of an Object metric in several members into one; the values of other metrics stay as they are.
///
/// An `averageValue`, which is shared among pods, is summed. A `value` is averaged with the ready pods of each member
/// as weights: so it asks for as many replicas as the members' own values together.
fn as_one_object(metric: &MetricSpec, values: Vec<i64>, ready: &[i128]) -> Vec<i64> {
    let MetricSpec::Object { target, .. } = metric else {
        return values;
    };
    let wide: Vec<_> = values.iter().copied().map(i128::from).collect();
    let pods: i128 = ready.iter().sum();
    let one = match target {
        _ if values.len() < 2 => return values,
        Target::Value(_) if pods > 0 => {
            let weighted = wide.iter().zip(ready).map(|(value, pods)| value * pods);
            weighted.sum::<i128>() / pods
        }
        Target::Value(_) => wide.into_iter().max().unwrap_or_default(),
        _ => wide.iter().sum(),
    };
    vec![i64::try_from(one).unwrap_or(i64::MAX)]
}

fn in_words(member: &str, unavailable: &Unavailable) -> Unavailable {
    let message = format!("member {member}: {}", unavailable.message);
    Unavailable::new(unavailable.reason, message)
}

/// The measurements so far with those of one more member; measurements of different kinds do not occur.
fn joined(so_far: Option<Measured>, member: &str, measured: &Measured) -> Measured {
    match (so_far, renamed(member, measured)) {
        (Some(Measured::Usage(mut all)), Measured::Usage(more)) => {
            all.extend(more);
            Measured::Usage(all)
        }
        (Some(Measured::Samples(mut all)), Measured::Samples(more)) => {
            all.extend(more);
            Measured::Samples(all)
        }
        (Some(Measured::Total(mut all)), Measured::Total(more)) => {
            all.extend(more);
            Measured::Total(all)
        }
        (_, first) => first,
    }
}

/// The measurements of a member, with its pods called by their names in the fleet.
fn renamed(member: &str, measured: &Measured) -> Measured {
    let mut renamed = measured.clone();
    match &mut renamed {
        Measured::Usage(all) => {
            for usage in all.iter_mut().map(Arc::make_mut) {
                usage.pod = in_member(member, &usage.pod);
            }
        }
        Measured::Samples(all) => {
            for sample in all {
                sample.pod = in_member(member, &sample.pod);
            }
        }
        Measured::Total(_) => {}
    }
    renamed
}

#[cfg(test)]
mod tests {
    use foretide_api::ports::{KedaPause, ScaleView};
    use foretide_domain::{
        forecast::Refused,
        hpa::{MetricContext, ObjectRef, Settings, Tolerance, propose},
        observation::{ContainerUsage, Phase, PodSample, PodUsage, Readiness, Status},
        proposal::Reason,
    };
    use jiff::SignedDuration;

    use super::*;
    use crate::{
        observe::{TargetObservation, TargetView},
        related_hpas::RelatedHpas,
    };

    const AT: Timestamp = Timestamp::UNIX_EPOCH;
    const WINDOW: SignedDuration = SignedDuration::from_secs(30);

    fn name(position: usize) -> Arc<str> {
        format!("web-{position}").into()
    }

    fn pod(position: usize) -> Arc<Pod> {
        Arc::new(Pod {
            name: name(position),
            phase: Phase::Running,
            deleting: false,
            created: None,
            ready: Some(Readiness {
                status: Status::True,
                since: AT,
            }),
            started: Some(AT),
            containers: Arc::new([Container {
                name: "app".into(),
                requests: [("cpu", 1000)].into_iter().collect(),
            }]),
            pod_level_requests: None,
        })
    }

    fn usage((position, cpu): (usize, &i64)) -> Arc<PodUsage> {
        Arc::new(PodUsage {
            pod: name(position),
            at: AT,
            window: WINDOW,
            containers: vec![ContainerUsage {
                name: "app".into(),
                usage: [("cpu", *cpu)].into_iter().collect(),
            }],
        })
    }

    fn sample((position, cpu): (usize, &i64)) -> PodSample {
        PodSample {
            pod: name(position),
            value: cpu / 10,
            at: AT,
            window: WINDOW,
        }
    }

    fn scale(replicas: usize) -> Scale {
        let replicas = Replicas::new(u32::try_from(replicas).unwrap());
        Scale {
            spec: replicas,
            status: replicas,
        }
    }

    /// A member with pods `web-0`, `web-1`, ... that use this much cpu, of 1000 each, and have a tenth of that as
    /// samples; and with totals.
    fn member(cpu: &[i64], total: i64) -> Present {
        let used = Measured::Usage(cpu.iter().enumerate().map(usage).collect());
        let samples = Measured::Samples(cpu.iter().enumerate().map(sample).collect());
        let totals = [total, total].map(|total| Measured::Total(vec![total]));
        let readings = [used.clone(), used, samples].into_iter().chain(totals);
        Present {
            observed: TargetObservation {
                workload: WorkloadObservation {
                    observation: Observation {
                        scale: scale(cpu.len()),
                        pods: (0..cpu.len()).map(pod).collect(),
                        readings: readings.map(Ok).collect(),
                        ..Observation::default()
                    },
                    forecasts: Vec::new(),
                    template: None,
                },
                target: TargetView {
                    scale: ScaleView::default(),
                    hpas: RelatedHpas::default(),
                    keda_pause: KedaPause::default(),
                },
            },
            unschedulable: Replicas::ZERO,
            unschedulable_since: None,
            capacity: None,
            foreign: false,
            replica_writer: None,
        }
    }

    fn cpu(target: Target) -> MetricSpec {
        MetricSpec::Resource {
            name: "cpu".into(),
            target,
        }
    }

    fn object(target: Target) -> MetricSpec {
        MetricSpec::Object {
            described: ObjectRef {
                api_version: "v1".into(),
                kind: "Service".into(),
                name: "front".into(),
            },
            metric: "hits".into(),
            selector: None,
            target,
        }
    }

    fn external(target: Target) -> MetricSpec {
        MetricSpec::External {
            metric: "queue".into(),
            selector: None,
            target,
        }
    }

    #[test]
    fn the_forecasts_of_members_are_added_with_both_bounds_and_one_that_is_missing_refuses_the_sum()
    {
        let of = |value, raise, hold| {
            ForecastReading::new(
                "resource.cpu".to_owned(),
                Ok(Predicted {
                    bounds: DemandBounds { raise, hold },
                    ..Predicted::of(value, 0.5)
                }),
            )
        };
        let (east, west) = (of(4.0, 1.0, 2.0), of(40.0, 10.0, 20.0));
        assert_eq!(added(east.clone(), west.clone()), of(44.0, 11.0, 22.0));
        let missing = ForecastReading {
            outcome: Err(Refused::new(
                Reason::NoData,
                "the query returned no samples",
            )),
            ..of(0.0, 0.0, 0.0)
        };
        let with_one_missing = [added(east, missing.clone()), added(missing.clone(), west)];
        assert_eq!(with_one_missing, [missing.clone(), missing]);
    }

    #[test]
    fn counts_are_added_over_the_members() {
        let (mut east, west) = (member(&[400, 600], 30), member(&[1400], 10));
        east.observed.workload.observation.undelivered = Replicas::new(2);
        let present = [("east", &east), ("west", &west)];
        assert_eq!(
            sum_over(&present, |seen| seen.undelivered),
            Replicas::new(2)
        );
        assert_eq!(sum_over(&present, |seen| seen.scale.spec), Replicas::new(3));
    }

    #[test]
    fn every_type_of_metric_counts_the_pods_of_all_members_though_their_names_are_equal() {
        let of_one = MetricSpec::ContainerResource {
            name: "cpu".into(),
            container: "app".into(),
            target: Target::AverageValue(400),
        };
        let of_pods = MetricSpec::Pods {
            metric: "hits".into(),
            selector: None,
            target: Target::AverageValue(32),
        };
        let members = [
            ("a", member(&[400, 600], 30)),
            ("b", member(&[1400], 10)),
            ("c", member(&[], 90)),
        ];
        let parts: Vec<_> = members
            .iter()
            .map(|(name, present)| (*name, present))
            .collect();
        let pods = parts.iter().flat_map(|(name, present)| {
            let pods = present.observed.workload.observation.pods.iter();
            pods.map(|pod| named(name, pod))
        });
        let view = MetricContext {
            scale: scale(3),
            unseen: Replicas::ZERO,
            undelivered: Replicas::ZERO,
            pods: &pods.collect::<Vec<_>>(),
            tolerance: Tolerance { up: 0.1, down: 0.1 },
            settings: &Settings::default(),
            now: AT + SignedDuration::from_hours(1),
        };
        // A mean of 800 of 1000, or 80; totals of the members that have pods: 30 and 10.
        for (column, metric, count) in [
            (0, cpu(Target::Utilization(50)), 5),
            (0, cpu(Target::AverageValue(300)), 8),
            (1, of_one, 6),
            (2, of_pods, 8),
            (3, object(Target::AverageValue(10)), 4),
            (4, external(Target::Value(10)), 12),
        ] {
            let reading = together(&metric, &parts, column);
            let found = propose(&metric, &reading, &view).map(|proposal| proposal.replicas);
            assert_eq!(found, Ok(Replicas::new(count)), "{metric:?}");
        }
    }

    #[test]
    fn an_object_of_several_members_has_one_value_and_other_metrics_keep_theirs() {
        let external = external(Target::AverageValue(10));
        let (shared, ratio) = (object(Target::AverageValue(10)), object(Target::Value(10)));
        for (metric, values, ready, expected) in [
            (&external, vec![20, 30], [1, 3], vec![20, 30]),
            (&shared, vec![20, 30], [1, 3], vec![50]),
            (&shared, vec![20], [1, 0], vec![20]),
            // 2 and 3 times the target: 1 * 2 + 3 * 3 = 11 of 4 pods, 2.75 times the target.
            (&ratio, vec![20_000, 30_000], [1, 3], vec![27_500]),
            (&ratio, vec![20, 30], [0, 0], vec![30]),
            (&shared, vec![i64::MAX, 1], [1, 1], vec![i64::MAX]),
        ] {
            let found = as_one_object(metric, values.clone(), &ready);
            assert_eq!(found, expected, "{values:?}, {ready:?}");
        }
    }
}
