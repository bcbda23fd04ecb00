//! The meaning of API objects, and the ports between the controller and the outside.
//!
//! ```text
//! spec ──► validation ──► domain ──► decision ──► status
//!              ports: traits that adapters implement
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`validation`] | the conversion of a spec to domain values, and the list of its violations |
//! | [`status`], [`member_reason`] | decisions as fields of a status, and what is read back from them |
//! | [`published`] | what others may use of a status: forecasts, cron windows and floors |
//! | [`ownership`] | the names and marks of the objects that we create |
//! | [`autoscaler`] | the fields that both kinds of autoscaler have |
//! | [`ports`] | the traits that adapters implement, in terms of the domain |
//!
//! The crate uses the wire types (`foretide-crds`, and those of Kubernetes), the domain, the divisions of fleets
//! (`foretide-federate`) and the forecasters (`foretide-models`). It must not have a client, a clock or a task, read
//! the environment, log, or know an adapter or the controller. Only ports are asynchronous.
//!
//! ```
//! use foretide_api::validation;
//! use foretide_crds::EffectiveHorizontalPodAutoscaler;
//! use foretide_domain::cron::Zone;
//!
//! let object: EffectiveHorizontalPodAutoscaler = serde_json::from_value(serde_json::json!({
//!     "apiVersion": "autoscaling.crane.io/v1alpha1",
//!     "kind": "EffectiveHorizontalPodAutoscaler",
//!     "metadata": {"name": "web", "namespace": "shop"},
//!     "spec": {
//!         "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
//!         "minReplicas": 2, "maxReplicas": 1, "scaleStrategy": "Auto",
//!     },
//! }))?;
//! let invalid = validation::workload(&object, &Zone::utc()).unwrap_err();
//! assert!(invalid.to_string().contains("minReplicas"));
//! # Ok::<(), serde_json::Error>(())
//! ```

pub mod autoscaler;
pub mod member_reason;
pub mod ownership;
pub mod ports;
pub mod published;
pub mod status;
pub mod validation;
