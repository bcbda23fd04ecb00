//! Pods that are listed for one request: every page, or an error.

use foretide_domain::observation::Phase;
use serde_json::{Value, json};

use super::super::KubePodLister;
use crate::api_server::Connection;
use foretide_api::ports::{ClusterError, ListedPod, PodLister};
use simkube::client::{FakeServer, Reply};

const FIRST: &str = "GET /api/v1/namespaces/shop/pods?limit=64&labelSelector=app%3Dweb";

fn lister(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> (FakeServer, KubePodLister) {
    let (server, client) = FakeServer::new(move |sent, _| reply(&sent.line));
    (server, KubePodLister::new(&Connection::over(client)))
}

fn page(names: &[&str], next: &str) -> Reply {
    let pod = |name: &&str| {
        json!({
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"containers": [{"name": "app"}], "nodeName": "node-0"},
            "status": {"phase": "Running"},
        })
    };
    let items: Vec<Value> = names.iter().map(pod).collect();
    Reply::Ok(json!({"metadata": {"resourceVersion": "1", "continue": next}, "items": items}))
}

#[tokio::test]
async fn all_pages_are_read() {
    let (server, lister) = lister(|line| match line {
        FIRST => page(&["web-a", "web-b"], "t/1"),
        _ => page(&["web-c"], ""),
    });
    let pods = lister.list_pods("shop", "app=web").await.unwrap();
    let names: Vec<_> = pods.iter().map(|pod| (&*pod.name, pod.phase)).collect();
    let running = ["web-a", "web-b", "web-c"].map(|name| (name, Phase::Running));
    assert_eq!(names, running);
    let lines: Vec<String> = server.sent().into_iter().map(|sent| sent.line).collect();
    let second = FIRST.replace("=64", "=128") + "&continue=t%2F1";
    assert_eq!(lines, [FIRST.to_owned(), second]);
}

#[tokio::test]
async fn a_part_of_the_pods_is_an_error() {
    let (_server, lister) = lister(|line| match line {
        FIRST => page(&["web-a"], "t"),
        _ => Reply::Fail(403, "pods is forbidden"),
    });
    let refused = lister.list_pods("shop", "app=web").await.unwrap_err();
    let expected = ClusterError::Refused {
        what: "the pods of namespace shop".to_owned(),
        message: "pods is forbidden".to_owned(),
    };
    assert_eq!(refused, expected);
}

#[tokio::test]
async fn only_what_is_read_of_a_pod_has_to_be_as_expected() {
    let odd = json!({
        "metadata": {"name": "web-a", "deletionTimestamp": "soon", "labels": 5},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "a lot"}}}]},
        "status": {"conditions": {}},
    });
    let unnamed = json!({"metadata": {}});
    let (_server, lister) = lister(move |line| {
        let item = if line == FIRST { &odd } else { &unnamed };
        Reply::Ok(json!({"metadata": {"resourceVersion": "1"}, "items": [item]}))
    });
    let pods = lister.list_pods("shop", "app=web").await.unwrap();
    let expected = ListedPod {
        name: "web-a".to_owned(),
        phase: Phase::Unknown,
        deleting: true,
    };
    assert_eq!(pods, [expected]);
    let invalid = lister.list_pods("shop", "").await.unwrap_err();
    assert!(
        matches!(&invalid, ClusterError::Invalid { what, .. } if what == "the pods of namespace shop"),
        "{invalid}"
    );
}
