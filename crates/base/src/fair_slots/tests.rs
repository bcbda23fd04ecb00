use std::{
    future::pending,
    sync::atomic::{AtomicU32, Ordering},
};

use tokio::time::sleep;

use super::*;

const SLOTS: usize = 5;

/// Starts `count` tasks that take `takes` each; returns a counter of those that have ended.
fn start(slots: &FairSlots, tenant: &str, count: u32, takes: Duration) -> Arc<AtomicU32> {
    let ended = Arc::<AtomicU32>::default();
    for _work in 0..count {
        let (slots, tenant, ended) = (slots.clone(), tenant.into(), Arc::clone(&ended));
        tokio::spawn(async move {
            let slot = slots.acquire(&tenant).await;
            slot.run(sleep(takes)).await;
            ended.fetch_add(1, Ordering::Relaxed);
        });
    }
    ended
}

fn ended(work: &AtomicU32) -> u32 {
    work.load(Ordering::Relaxed)
}

const PROMPT_WORK: Duration = Duration::from_millis(100);
const SLOW_WORK: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn after_two_seconds_slow_work_uses_no_slot_of_other_tenants() {
    let slots = FairSlots::new(SLOTS, Clock::system());
    let slow = start(&slots, "slow", 200, SLOW_WORK);
    sleep(PROMPT * 2).await;
    assert_eq!(slots.slow_tenants(), ["slow".into()]);
    let prompt = start(&slots, "shop", 41, PROMPT_WORK);
    // The first runs alone, because the latency of the tenant is unknown, and the rest four at a time.
    sleep(PROMPT_WORK * 11 + PROMPT_WORK / 2).await;
    assert_eq!((ended(&prompt), ended(&slow)), (41, 0));
}

#[tokio::test(start_paused = true)]
async fn slow_work_alone_has_four_slots() {
    let slots = FairSlots::new(SLOTS, Clock::system());
    let slow = start(&slots, "slow", 200, SLOW_WORK);
    sleep(PROMPT + SLOW_WORK * 10).await;
    let done = ended(&slow);
    assert!((37..=41).contains(&done), "{done}");
}

#[tokio::test(start_paused = true)]
async fn tenants_with_slow_work_share_the_slow_lane() {
    let slots = FairSlots::new(SLOTS, Clock::system());
    let many = start(&slots, "many", 200, SLOW_WORK);
    let few = start(&slots, "few", 30, SLOW_WORK);
    sleep(SLOW_WORK * 12).await;
    let (many, few) = (ended(&many), ended(&few));
    assert!(few >= 20 && many >= 20, "{many} {few}");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_is_prompt_again_a_minute_after_its_last_slow_work() {
    let slots = FairSlots::new(SLOTS, Clock::system());
    start(&slots, "shop", 1, SLOW_WORK);
    sleep(SLOW_WORK + Duration::from_secs(59)).await;
    assert_eq!(slots.slow_tenants(), ["shop".into()]);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(slots.slow_tenants(), Vec::<Arc<str>>::new());
}

#[tokio::test(start_paused = true)]
async fn a_canceled_caller_leaves_the_queue_and_releases_its_slot() {
    let slots = FairSlots::new(SLOTS, Clock::system());
    let shop: Arc<str> = "shop".into();
    let held = slots.acquire(&shop).await;
    let waiting = start(&slots, "shop", 3, PROMPT_WORK);
    for _attempt in 0..3 {
        let waits = timeout(PROMPT_WORK, slots.acquire(&shop)).await;
        assert!(waits.is_err(), "a tenant of unknown latency has one slot");
    }
    let canceled = timeout(PROMPT_WORK, held.run(pending::<()>())).await;
    assert!(canceled.is_err());
    drop(held);
    sleep(PROMPT_WORK * 4).await;
    assert_eq!(ended(&waiting), 3);
}
