//! The pages of a list: the number of objects that each asks for, and the number of pages that are read at a time.
//!
//! ```text
//! 64 objects ──► too long ──► 16 ──► read: 250 KiB per object ──► 8 ──► ... ──► small ones ──► 16 ──► ... ──► 500
//! ```
//!
//! Objects differ in size: 500 pods are some 4 MiB, 500 objects with large annotations more than 100 MiB, for which a
//! server takes longer than is waited. A page that is too long is asked for again in a smaller one, with the same
//! continue token, down to one object. Pages that were read say how large the objects are, and the next one asks for as
//! many as fit into [`PAGE_TARGET`].

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{error::CallError, resource::query};

/// Number of objects of the first page.
const OBJECTS_FIRST: usize = 64;
/// Maximum number of objects of a page: the page size of client-go.
const OBJECTS_MAX: usize = 500;
/// The size that a page should have.
const PAGE_TARGET: usize = 2 << 20;
/// Maximum size of a page of several objects.
const PAGE_MAX: usize = 8 << 20;
/// Maximum size of a page of one object. Etcd stores 1.5 MiB of one by default.
const SINGLE_MAX: usize = 32 << 20;
/// Maximum number of objects of a list; the largest clusters have 150 000 pods.
const LIST_MAX: usize = 250_000;
/// Maximum number of pages without an object: a faulty server may send a list without end.
const EMPTY_PAGES_MAX: u32 = 100;
/// Number of pages of members that are read at a time.
const TURNS: usize = 4;
/// Number of pages of the hub that are read at a time.
const HUB_TURNS: usize = 2;

/// Progress of reading a list.
#[derive(Debug)]
pub struct Pages {
    /// The number of objects that the next page asks for.
    limit: usize,
    /// The continue token of the next page; none for the first.
    next: Option<String>,
    /// The version of the list, once its last page has been read.
    version: Option<String>,
    objects: usize,
    without_objects: u32,
}

/// The right to read a page of a list, which bounds the memory of pages: [`HUB_TURNS`] at a time for the hub, one for
/// each member, and [`TURNS`] for all members together. Members never wait for the hub, nor the hub for them.
#[derive(Debug, Clone)]
pub struct PageTurns {
    of_cluster: Arc<Semaphore>,
    /// The turns of all members; the hub takes none of them.
    of_members: Arc<Semaphore>,
    is_member: bool,
}

/// A turn in use, while a page is being read.
#[derive(Debug)]
pub struct PageTurn(#[expect(dead_code, reason = "held")] [Option<OwnedSemaphorePermit>; 2]);

#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMeta,
    /// Objects as text, so that one at a time is decoded.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

// === impl Pages ===

impl Default for Pages {
    /// The state before the first page.
    fn default() -> Self {
        Self {
            limit: OBJECTS_FIRST,
            next: None,
            version: None,
            objects: 0,
            without_objects: 0,
        }
    }
}

impl Pages {
    /// The state before the first page, after this many lists in a row that timed out: a page has a quarter of the
    /// objects each time.
    pub fn after_timeouts(timeouts: u32) -> Self {
        let quarters = 4_usize.saturating_pow(timeouts);
        Self {
            limit: (OBJECTS_FIRST / quarters).max(1),
            ..Self::default()
        }
    }

    /// The first page, of one object.
    pub fn of_one_object() -> Self {
        Self {
            limit: 1,
            ..Self::default()
        }
    }

    /// The version of the server at which it answered with this page.
    ///
    /// # Errors
    /// The text is no page of a list.
    pub fn version_of(text: &str) -> Result<String, CallError> {
        Ok(Page::of(text)?.metadata.resource_version)
    }

    /// The version of the list, once it is complete.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The query string of the request for the next page, of the objects that these parameters select.
    pub fn query(&self, selectors: &[(&str, &str)]) -> String {
        let limit = self.limit.to_string();
        let mut pairs: Vec<(&str, &str)> = vec![("limit", &limit)];
        pairs.extend(selectors);
        pairs.extend(self.next.as_deref().map(|token| ("continue", token)));
        query(&pairs)
    }

    /// Maximum size of the response with the next page, in bytes.
    pub fn max_bytes(&self) -> usize {
        if self.limit == 1 {
            SINGLE_MAX
        } else {
            PAGE_MAX
        }
    }

    /// The objects of the next page, each as JSON text.
    ///
    /// # Errors
    /// The text is no page of a list, or the list does not end.
    pub fn read<'a>(
        &mut self,
        text: &'a str,
    ) -> Result<impl Iterator<Item = &'a str> + use<'a>, CallError> {
        let page = Page::of(text)?;
        let items = page.items.unwrap_or_default();
        self.objects = self.objects.saturating_add(items.len());
        self.without_objects = self
            .without_objects
            .saturating_add(u32::from(items.is_empty()));
        // An empty token marks the last page, like an absent one.
        self.next = page.metadata.next.filter(|token| !token.is_empty());
        if self.next.is_none() {
            self.version = Some(page.metadata.resource_version);
        } else if self.objects > LIST_MAX || self.without_objects > EMPTY_PAGES_MAX {
            return Err(CallError::Response(format!(
                "list longer than the limit of {LIST_MAX} objects, or with more than {EMPTY_PAGES_MAX} empty pages"
            )));
        }
        self.limit = next_limit(self.limit, text.len(), items.len());
        Ok(items.into_iter().map(RawValue::get))
    }

    /// Asks for fewer objects after the error that a page was too long.
    ///
    /// # Errors
    /// Any other error, and that of a page of one object.
    pub fn retry_smaller(&mut self, error: CallError) -> Result<(), CallError> {
        match error {
            CallError::TooLong(_) if self.limit > 1 => {
                self.limit = (self.limit / 4).max(1);
                Ok(())
            }
            error => Err(error),
        }
    }
}

// === impl Page ===

impl<'a> Page<'a> {
    fn of(text: &'a str) -> Result<Self, CallError> {
        serde_json::from_str(text).map_err(|error| CallError::Response(error.to_string()))
    }
}

/// Number of objects that the page after one with this many `bytes` and `objects` asks for. At most twice as many as
/// before: the next objects may be larger.
fn next_limit(limit: usize, bytes: usize, objects: usize) -> usize {
    let fitting = PAGE_TARGET.saturating_mul(objects.max(1)) / bytes.max(1);
    fitting.min(limit.saturating_mul(2)).clamp(1, OBJECTS_MAX)
}

// === impl PageTurns ===

impl Default for PageTurns {
    /// The turns of a hub.
    fn default() -> Self {
        Self {
            of_cluster: Arc::new(Semaphore::new(HUB_TURNS)),
            of_members: Arc::new(Semaphore::new(TURNS)),
            is_member: false,
        }
    }
}

impl PageTurns {
    /// The turns of a member of this hub.
    pub fn of_member(&self) -> Self {
        Self {
            of_cluster: Arc::new(Semaphore::new(1)),
            of_members: Arc::clone(&self.of_members),
            is_member: true,
        }
    }

    /// Waits for a turn, in the order of the calls.
    pub async fn take(&self) -> PageTurn {
        // The semaphores are never closed.
        let of_cluster = Arc::clone(&self.of_cluster).acquire_owned().await.ok();
        // After the member's own turn: while it waits for that, it must not hold one that other members could use.
        let of_members = if self.is_member {
            Arc::clone(&self.of_members).acquire_owned().await.ok()
        } else {
            None
        };
        PageTurn([of_cluster, of_members])
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Number of objects that each page asks for, of a list of objects of these sizes in bytes.
    fn limits(sizes: &[usize]) -> Vec<usize> {
        let (mut pages, mut limits, mut at) = (Pages::default(), Vec::new(), 0);
        while pages.version().is_none() {
            limits.push(pages.limit);
            let objects: Vec<_> = sizes[at..].iter().take(pages.limit).collect();
            let items: Vec<_> = objects.iter().map(|size| "x".repeat(**size)).collect();
            let next = if at + items.len() < sizes.len() {
                "more"
            } else {
                ""
            };
            let page =
                json!({"metadata": {"resourceVersion": "7", "continue": next}, "items": items});
            let text = page.to_string();
            if text.len() > pages.max_bytes() {
                let error = CallError::TooLong(pages.max_bytes());
                pages.retry_smaller(error).unwrap();
                continue;
            }
            at += pages.read(&text).unwrap().count();
        }
        assert_eq!((at, pages.version()), (sizes.len(), Some("7")));
        limits
    }

    #[test]
    fn pages_are_as_large_as_the_objects_allow() {
        assert_eq!(limits(&[]), [64]);
        assert_eq!(limits(&[2_000; 1_200]), [64, 128, 256, 500, 500]);
        let (large, small) = (250 << 10, 1_000);
        assert_eq!(limits(&[large; 40]), [64, 16, 8, 8, 8]);
        let mut mixed = vec![large; 40];
        mixed.extend([small; 1_000]);
        let limits = limits(&mixed);
        assert_eq!(limits.last(), Some(&500), "{limits:?}");
        assert!(limits.len() < 25, "{limits:?}");
    }

    #[test]
    fn one_object_that_is_too_large_is_an_error_and_so_is_any_other_failure() {
        let mut pages = Pages::default();
        assert!(
            pages
                .retry_smaller(CallError::Response("cut".into()))
                .is_err()
        );
        for limit in [16, 4, 1] {
            pages.retry_smaller(CallError::TooLong(1)).unwrap();
            assert_eq!(pages.query(&[]), format!("?limit={limit}"));
        }
        assert!(pages.retry_smaller(CallError::TooLong(1)).is_err());
    }

    #[test]
    fn a_list_without_an_end_is_an_error() {
        let mut pages = Pages::default();
        let page = json!({"metadata": {"resourceVersion": "7", "continue": "more"}}).to_string();
        let read = (0..1_000).find_map(|_| pages.read(&page).err());
        assert!(read.unwrap().to_string().contains("250000 objects"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Every object is read once, whatever the sizes, with at most a few requests more than objects.
        #[test]
        fn every_object_is_read(sizes in prop::collection::vec(prop_oneof![Just(100), Just(300_000), Just(3_000_000)], 0..40)) {
            let limits = limits(&sizes);
            prop_assert!(limits.len() <= 3 * sizes.len() + 1, "{limits:?}");
            prop_assert!(limits.iter().all(|limit| (1..=500).contains(limit)));
        }
    }

    #[tokio::test]
    async fn each_cluster_has_one_turn_and_the_members_some_that_the_hub_does_not_wait_for() {
        let hub = PageTurns::default();
        let members: Vec<_> = (0..=TURNS).map(|_| hub.of_member()).collect();
        let mut turns: Vec<_> = members
            .iter()
            .map(|member| member.take().now_or_never())
            .collect();
        assert!(turns.pop().unwrap().is_none(), "one more than members have");
        assert!(turns.iter().all(Option::is_some));
        let held: Vec<_> = (0..=HUB_TURNS).map(|_| hub.take().now_or_never()).collect();
        let taken = held.iter().filter(|turn| turn.is_some()).count();
        assert_eq!(taken, HUB_TURNS, "however many members are read");
        turns.pop();
        assert!(members[TURNS].take().now_or_never().is_some());
    }
}
