//! Taints and tolerations of clusters, with the semantics that Kubernetes gives those of nodes.

use std::str::FromStr;

use jiff::Timestamp;
use serde::Deserialize;

/// A taint of a cluster or of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value; empty for none.
    pub value: String,
    /// The effect.
    pub effect: TaintEffect,
    /// The time at which it was added; absent means when it was first observed.
    pub since: Option<Timestamp>,
}

foretide_domain::words! {
    /// The effect of a taint.
    ///
    /// ```
    /// use foretide_federate::TaintEffect;
    ///
    /// assert_eq!("NoExecute".parse::<TaintEffect>(), Ok(TaintEffect::NoExecute));
    /// assert!("NoExec".parse::<TaintEffect>().is_err());
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
    pub enum TaintEffect {
        /// No new share; existing pods stay.
        NoSchedule,
        /// The same as `NoSchedule`, if another cluster has no such taint.
        PreferNoSchedule,
        /// The share is lost when the toleration ends.
        NoExecute,
    }
}

/// The text is not a taint effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected NoSchedule, PreferNoSchedule or NoExecute")]
pub struct ParseTaintEffectError;

impl FromStr for TaintEffect {
    type Err = ParseTaintEffectError;

    fn from_str(text: &str) -> Result<Self, ParseTaintEffectError> {
        Self::ALL
            .iter()
            .copied()
            .find(|effect| effect.as_str() == text)
            .ok_or(ParseTaintEffectError)
    }
}

/// A toleration, as on pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toleration {
    /// The taint's key; absent matches every key.
    pub key: Option<String>,
    /// The taint's value; absent matches every value (operator `Exists`).
    pub value: Option<String>,
    /// The taint's effect; absent matches every effect.
    pub effect: Option<TaintEffect>,
    /// For how many seconds a `NoExecute` taint is tolerated; absent means without limit.
    pub seconds: Option<i64>,
}

impl Toleration {
    /// True if it matches a taint; `seconds` is ignored.
    ///
    /// ```
    /// use foretide_federate::{Taint, TaintEffect, Toleration};
    ///
    /// let taint = Taint {
    ///     key: "maintenance".into(),
    ///     value: "soon".into(),
    ///     effect: TaintEffect::NoExecute,
    ///     since: None,
    /// };
    /// // An empty toleration matches every taint.
    /// assert!(Toleration::default().tolerates(&taint));
    /// let of_another_key = Toleration { key: Some("gpu".into()), ..Toleration::default() };
    /// assert!(!of_another_key.tolerates(&taint));
    /// ```
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self
                .value
                .as_ref()
                .is_none_or(|value| *value == taint.value)
            && self.effect.is_none_or(|effect| effect == taint.effect)
    }
}
