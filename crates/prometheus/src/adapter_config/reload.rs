//! The configuration in use while its file or `ConfigMap` changes.
//!
//! The last configuration that could be read stays in use until another one can be read, or until the file is deleted.
//! Fetching the text is left to the caller.

use std::sync::Arc;

use parking_lot::RwLock;

use super::{config::AdapterConfig, fields::FieldError};

/// The rules in use; clones share them. Empty until the first [`RulesCache::reload`].
#[derive(Debug, Clone, Default)]
pub struct RulesCache(Arc<RwLock<Snapshot>>);

#[derive(Debug, Default)]
struct Snapshot {
    config: Arc<AdapterConfig>,
    /// Number of times that `config` was replaced.
    version: u64,
    /// Result of the last reload: the text, no file, or an error.
    found: Option<Result<Option<String>, String>>,
}

/// Outcome of a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// The text is the same as at the last reload.
    Unchanged,
    /// The new rules are in use.
    Reloaded {
        /// Number of rules.
        rules: usize,
        /// The fields that cannot be used.
        errors: Vec<FieldError>,
    },
    /// The text cannot be read; the previous rules stay in use.
    Failed(String),
    /// There is no configuration; no rules are in use.
    NotFound,
}

// === impl RulesCache ===

impl RulesCache {
    /// The rules in use.
    pub fn rules(&self) -> Arc<AdapterConfig> {
        let snapshot = self.0.read();
        Arc::clone(&snapshot.config)
    }

    /// Number of times that the rules in use were replaced.
    pub fn version(&self) -> u64 {
        self.0.read().version
    }

    /// Takes over a configuration that was looked up: its text, none, or the reason why it could not be read.
    pub fn reload(&self, found: Result<Option<String>, String>) -> ReloadOutcome {
        if self.was_found(&found) {
            return ReloadOutcome::Unchanged;
        }
        // Outside the lock, because parsing compiles regular expressions.
        let (config, outcome) = match &found {
            Ok(Some(text)) => match AdapterConfig::read(text) {
                Ok(config) => {
                    let (rules, errors) = (config.len(), config.errors().to_vec());
                    (Some(config), ReloadOutcome::Reloaded { rules, errors })
                }
                Err(error) => (None, ReloadOutcome::Failed(error.to_string())),
            },
            Ok(None) => (Some(AdapterConfig::default()), ReloadOutcome::NotFound),
            Err(error) => (None, ReloadOutcome::Failed(error.clone())),
        };
        let mut snapshot = self.0.write();
        if let Some(config) = config {
            snapshot.config = Arc::new(config);
            snapshot.version += 1;
        }
        snapshot.found = Some(found);
        outcome
    }

    fn was_found(&self, found: &Result<Option<String>, String>) -> bool {
        let snapshot = self.0.read();
        snapshot.found.as_ref() == Some(found)
    }
}

// === impl ReloadOutcome ===

impl ReloadOutcome {
    /// Errors of the configuration, and the rules in use meanwhile; none if nothing is wrong.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Unchanged => None,
            Self::Reloaded { errors, .. } if errors.is_empty() => None,
            Self::Reloaded { errors, .. } => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                Some(format!("not used: {}", errors.join("; ")))
            }
            Self::Failed(why) => Some(format!(
                "cannot be read; the previous rules, if any, stay in use: {why}"
            )),
            Self::NotFound => Some("not found; built-in queries are used".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_readable_rules_stay_in_use_until_they_are_replaced_or_deleted() {
        let cache = RulesCache::default();
        let text = |text: &str| Ok(Some(text.to_owned()));
        let one = "externalRules: [{seriesQuery: x, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'}]";
        let reloaded = |rules| ReloadOutcome::Reloaded {
            rules,
            errors: Vec::new(),
        };
        let unread = || Err("no answer".to_owned());
        let steps = [
            (unread(), ReloadOutcome::Failed("no answer".to_owned()), 0),
            (text(one), reloaded(1), 1),
            (text(one), ReloadOutcome::Unchanged, 1),
            (unread(), ReloadOutcome::Failed("no answer".to_owned()), 1),
            (unread(), ReloadOutcome::Unchanged, 1),
            (
                text("rules: {}"),
                ReloadOutcome::Failed("rules: expected a list, found a mapping".to_owned()),
                1,
            ),
            (Ok(None), ReloadOutcome::NotFound, 0),
            (text(one), reloaded(1), 1),
            (text(""), reloaded(0), 0),
        ];
        let mut versions = Vec::new();
        for (step, (found, expected, in_use)) in steps.into_iter().enumerate() {
            assert_eq!(cache.reload(found), expected, "step {step}");
            assert_eq!(cache.rules().len(), in_use, "step {step}");
            versions.push(cache.version());
        }
        assert_eq!(versions, [0, 1, 1, 1, 1, 1, 2, 3, 4]);
    }

    #[test]
    fn a_problem_says_which_rules_are_in_use() {
        let cache = RulesCache::default();
        let problem = |found| cache.reload(found).problem().unwrap_or_default();
        let text = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(problem(text("rules: []")), "");
        assert_eq!(problem(text("rules: []")), "");
        assert_eq!(
            problem(text("rules: [1, {seriesQuery: x}]")),
            "not used: rules[0]: expected a mapping of fields, found a number; rules[1].metricsQuery: is missing"
        );
        assert_eq!(
            problem(Err("no answer".to_owned())),
            "cannot be read; the previous rules, if any, stay in use: no answer"
        );
        assert_eq!(problem(Ok(None)), "not found; built-in queries are used");
    }
}
