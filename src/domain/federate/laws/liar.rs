//! X10 over the whole loop: a fleet at rest, one member of which says anything at all of its pods and its nodes for a while.

use crate::domain::federate::{Pods, Reason};

use super::fleets::{Random, at, n};
use super::whole::{Broken, always, broken, calmed};
use super::world::{Lie, Sync, World};

/// How long it lies, in half minutes.
const LIES: u32 = 60;

fn lie(random: &mut Random, now: i64) -> Lie {
    let wild = if random.one_in(8) { 1_000_000 } else { 40 };
    let replicas = random.within(0, wild);
    let unschedulable = if random.one_in(2) {
        random.within(0, replicas)
    } else {
        0
    };
    let age = i64::from(random.within(0, 200));
    Lie {
        pods: Pods {
            replicas: n(replicas),
            ready: n(random.within(0, replicas - unschedulable)),
            unschedulable: n(unschedulable),
            unschedulable_since: (unschedulable > 0).then(|| at(now - age)),
        },
        desired: random.one_in(2).then(|| random.within(0, wild)),
        capacity: (!random.one_in(4)).then(|| random.within(0, wild)),
    }
}

fn run(seed: u64) -> Result<(), Broken> {
    let mut scene = calmed(seed);
    scene.world.policy.min_utilization = Some(0.7);
    let world = &mut scene.world;
    let of = u32::try_from(world.sites.len()).expect("few");
    let liar = usize::try_from(scene.random.within(0, of - 1)).expect("few");
    for step in 0..LIES {
        if step == 0 || scene.random.one_in(4) {
            world.sites[liar].lie = Some(lie(&mut scene.random, world.now));
        }
        let before: Vec<_> = world.sites.iter().map(|site| site.hpa).collect();
        let Some(sync) = world.step() else {
            continue;
        };
        always(world, &sync)?;
        others_keep_their_minima(world, &sync, liar, &before)?;
    }
    Ok(())
}

/// Nobody else is put below the minimum that was written for it, or below what it runs but in the order of R9.
fn others_keep_their_minima(
    world: &World,
    sync: &Sync,
    liar: usize,
    before: &[Option<(u32, u32)>],
) -> Result<(), Broken> {
    for (place, site) in world.sites.iter().enumerate() {
        let (Some((min, _)), Some(decided)) = (before[place], sync.decision.member(&site.name))
        else {
            continue;
        };
        let seen = sync.members.iter().find(|m| m.profile.name == site.name);
        let pods = seen.and_then(|m| m.pods).unwrap_or_default();
        let own = pods.unschedulable > n(0)
            || pods.replicas == n(0)
            || decided.reasons.contains(&Reason::Slept);
        if place == liar || own || !site.reached {
            continue;
        }
        if decided.max.get() < min {
            return broken(
                "X10 a lie puts nobody else below its written minimum",
                format!("{} had {min}: {}", site.name, sync.decision.message()),
            );
        }
    }
    Ok(())
}

#[test]
fn what_one_member_says_takes_no_minimum_of_another() {
    let broken = (0..250).filter_map(|seed| Some((seed, run(seed).err()?)));
    let broken: Vec<_> = broken.collect();
    assert!(
        broken.is_empty(),
        "{} runs: {:?}",
        broken.len(),
        &broken[..broken.len().min(4)]
    );
}
