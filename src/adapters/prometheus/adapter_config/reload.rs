//! The rules in force, while the configuration that they are read from changes under way. What was read last and could
//! be read stays in force until something else can be read, or until the configuration is gone. It does not fetch.

use std::sync::{Arc, PoisonError, RwLock};

use super::{Fault, Rules};

/// The rules in force; clones share them. Without rules from the start.
#[derive(Debug, Clone, Default)]
pub struct RulesCache(Arc<RwLock<Snapshot>>);

#[derive(Debug, Default)]
struct Snapshot {
    rules: Arc<Rules>,
    /// How many times they were replaced.
    version: u64,
    /// What the last look found.
    seen: Option<Found>,
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Text(String),
    Nothing,
    Unread(String),
}

/// What became of a look at the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// It is as it was at the last look.
    Unchanged,
    /// Its rules are in force now.
    Taken {
        /// How many there are.
        rules: usize,
        /// What of it cannot be used.
        faults: Vec<Fault>,
    },
    /// It cannot be read or used: what was in force before stays.
    Kept(String),
    /// There is none: no rules are in force.
    Gone,
}

// === impl RulesCache ===

impl RulesCache {
    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        let page = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&page.rules)
    }

    /// How many times the rules in force were replaced.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .version
    }

    /// Takes what a look at the configuration found: its text, nothing, or why it could not be looked at.
    pub fn shelve(&self, found: Result<Option<String>, String>) -> ReloadOutcome {
        let found = match found {
            Ok(Some(text)) => Found::Text(text),
            Ok(None) => Found::Nothing,
            Err(why) => Found::Unread(why),
        };
        if self.has_seen(&found) {
            return ReloadOutcome::Unchanged;
        }
        // Reading them compiles patterns: nobody waits for that.
        let (rules, shelved) = match &found {
            Found::Text(text) => match Rules::read(text) {
                Ok(rules) => {
                    let (rules_read, faults) = (rules.len(), rules.faults().to_vec());
                    let taken = ReloadOutcome::Taken {
                        rules: rules_read,
                        faults,
                    };
                    (Some(rules), taken)
                }
                Err(fault) => (None, ReloadOutcome::Kept(fault.to_string())),
            },
            Found::Nothing => (Some(Rules::default()), ReloadOutcome::Gone),
            Found::Unread(why) => (None, ReloadOutcome::Kept(why.clone())),
        };
        let mut page = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(rules) = rules {
            page.rules = Arc::new(rules);
            page.version += 1;
        }
        page.seen = Some(found);
        shelved
    }

    fn has_seen(&self, found: &Found) -> bool {
        let page = self.0.read().unwrap_or_else(PoisonError::into_inner);
        page.seen.as_ref() == Some(found)
    }
}

// === impl ReloadOutcome ===

impl ReloadOutcome {
    /// What a person should look after, and what is done meanwhile.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Unchanged => None,
            Self::Taken { faults, .. } if faults.is_empty() => None,
            Self::Taken { faults, .. } => {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                Some(format!("not used: {}", faults.join("; ")))
            }
            Self::Kept(why) => Some(format!(
                "cannot be read, so those in force before, if any, stay: {why}"
            )),
            Self::Gone => Some("not found, so built-in queries are used".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_read_stays_until_there_is_something_better_or_nothing() {
        let book = RulesCache::default();
        let text = |text: &str| Ok(Some(text.to_owned()));
        let one = "externalRules: [{seriesQuery: x, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'}]";
        let taken = |rules| ReloadOutcome::Taken {
            rules,
            faults: Vec::new(),
        };
        let unread = || Err("no answer".to_owned());
        let steps = [
            (unread(), ReloadOutcome::Kept("no answer".to_owned()), 0),
            (text(one), taken(1), 1),
            (text(one), ReloadOutcome::Unchanged, 1),
            (unread(), ReloadOutcome::Kept("no answer".to_owned()), 1),
            (unread(), ReloadOutcome::Unchanged, 1),
            (
                text("rules: {}"),
                ReloadOutcome::Kept("rules: expected a list, found a mapping".to_owned()),
                1,
            ),
            (Ok(None), ReloadOutcome::Gone, 0),
            (text(one), taken(1), 1),
            (text(""), taken(0), 0),
        ];
        let mut versions = Vec::new();
        for (step, (found, expected, in_force)) in steps.into_iter().enumerate() {
            assert_eq!(book.shelve(found), expected, "step {step}");
            assert_eq!(book.rules().len(), in_force, "step {step}");
            versions.push(book.version());
        }
        assert_eq!(versions, [0, 1, 1, 1, 1, 1, 2, 3, 4]);
    }

    #[test]
    fn every_problem_says_what_is_done_meanwhile() {
        let book = RulesCache::default();
        let problem = |found| book.shelve(found).problem().unwrap_or_default();
        let text = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(problem(text("rules: []")), "");
        assert_eq!(problem(text("rules: []")), "");
        assert_eq!(
            problem(text("rules: [1, {seriesQuery: x}]")),
            "not used: rules[0]: expected a mapping of fields, found a number; rules[1].metricsQuery: is missing"
        );
        assert_eq!(
            problem(Err("no answer".to_owned())),
            "cannot be read, so those in force before, if any, stay: no answer"
        );
        assert_eq!(problem(Ok(None)), "not found, so built-in queries are used");
    }
}
