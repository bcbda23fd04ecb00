//! The scheduler: a pod goes to the first node with the cpu that it requests.

use std::collections::BTreeMap;

use serde_json::json;

use super::{World, milli, path_of, requests};

impl World {
    pub(super) fn schedule(&self) {
        let pods = self.server.objects("pods");
        if pods.iter().all(|pod| pod["spec"]["nodeName"].is_string()) {
            return;
        }
        let mut free = BTreeMap::new();
        for node in self.server.objects("nodes") {
            let name = node["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let cpu = node["status"]["allocatable"]["cpu"]
                .as_str()
                .and_then(milli);
            free.insert(name, cpu.unwrap_or_default());
        }
        for pod in &pods {
            if let Some(left) = pod["spec"]["nodeName"]
                .as_str()
                .and_then(|node| free.get_mut(node))
            {
                *left = left.saturating_sub(requests(pod));
            }
        }
        for pod in pods.iter().filter(|pod| pod["spec"]["nodeName"].is_null()) {
            let needed = requests(pod);
            let fitting = free.iter_mut().find(|(_, left)| **left >= needed);
            if let Some((node, left)) = fitting {
                *left -= needed;
                self.patch(
                    "scheduler",
                    &path_of(pod),
                    &json!({"spec": {"nodeName": node}}),
                );
            } else if pod["status"]["conditions"].is_null() {
                let unschedulable = json!({
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "no node has enough cpu", "lastTransitionTime": (self.now)(),
                });
                let status = json!({"status": {"conditions": [unschedulable]}});
                self.patch("scheduler", &format!("{}/status", path_of(pod)), &status);
            }
        }
    }
}
