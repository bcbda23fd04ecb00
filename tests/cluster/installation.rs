//! The installation page, that of the metric adapter and the way from an HPA to a forecast, followed word by word on a real
//! control plane, with the real `kubectl` and `helm`. Pods of the rig run nothing, so the controller and the servers start as processes of what the
//! Deployments in the cluster say.

mod adapter;
mod chart;
mod page;
mod pod;
mod site;
mod takeover;
mod trial;
mod walk;
