//! The installation page and that of the metric adapter, followed word by word on a real control plane, with the real
//! `kubectl` and `helm`. Pods of the rig run nothing, so the controller starts as a process of what the Deployment in the
//! cluster says.

mod adapter;
mod chart;
mod page;
mod pod;
mod site;
mod takeover;
mod walk;
