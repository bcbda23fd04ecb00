//! The kubelets: a pod on a node runs at once, is ready after its start-up, and ends as soon as it is deleted.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{World, is_ready, path_of};

impl World {
    pub(super) fn run_pods(&self) {
        let now = (self.now)();
        for pod in self.server.objects("pods") {
            if pod["metadata"]["deletionTimestamp"].is_string() {
                let path = format!("{}?gracePeriodSeconds=0", path_of(&pod));
                self.server.ask("kubelet", "DELETE", &path, &Value::Null);
                continue;
            }
            if pod["spec"]["nodeName"].is_null() || is_ready(&pod) {
                continue;
            }
            let started = pod["status"]["startTime"]
                .as_str()
                .and_then(|text| text.parse::<Timestamp>().ok());
            match started {
                None => self.report_pod(&pod, now, "False", now),
                Some(started) if now.duration_since(started) >= self.start_up() => {
                    self.report_pod(&pod, started, "True", now);
                }
                Some(_) => {}
            }
        }
    }

    fn start_up(&self) -> SignedDuration {
        SignedDuration::try_from(self.start_up).unwrap_or(SignedDuration::MAX)
    }

    pub(super) fn report_pod(
        &self,
        pod: &Value,
        started: Timestamp,
        ready: &str,
        since: Timestamp,
    ) {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": since});
        let status = json!({"status": {
            "phase": "Running", "startTime": started,
            "conditions": [condition("PodScheduled", "True"), condition("Ready", ready)],
        }});
        self.patch("kubelet", &format!("{}/status", path_of(pod)), &status);
    }
}
