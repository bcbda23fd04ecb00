//! The authorities of clients: the requests of their watch, and what their fields mean.

use serde_json::{Value, json};

use super::super::KubeClientAuthorities;
use crate::{
    adapters::api_server::{
        Connection,
        fake::{FakeServer, Reply},
    },
    ports::{ClientAuthorities, RequestHeader},
};

fn config_map(version: &str, data: &Value) -> Value {
    json!({
        "metadata": {
            "namespace": "kube-system", "name": "extension-apiserver-authentication", "resourceVersion": version,
        },
        "data": data,
    })
}

fn list(item: &Value) -> Reply {
    Reply::Ok(json!({"metadata": {"resourceVersion": "1"}, "items": [item]}))
}

fn all() -> Value {
    json!({
        "client-ca-file": "users",
        "requestheader-client-ca-file": "proxies",
        "requestheader-allowed-names": r#"["front-proxy-client"]"#,
        "requestheader-username-headers": r#"["X-Remote-User"]"#,
        "requestheader-uid-headers": r#"["X-Remote-Uid"]"#,
        "requestheader-group-headers": r#"["X-Remote-Group"]"#,
        "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
    })
}

fn expected() -> ClientAuthorities {
    let one = |text: &str| vec![text.to_owned()];
    ClientAuthorities {
        client_ca: Some("users".to_owned()),
        request_header: Some(RequestHeader {
            ca: "proxies".to_owned(),
            allowed_names: one("front-proxy-client"),
            username_headers: one("X-Remote-User"),
            uid_headers: one("X-Remote-Uid"),
            group_headers: one("X-Remote-Group"),
            extra_header_prefixes: one("X-Remote-Extra-"),
        }),
    }
}

#[tokio::test(start_paused = true)]
async fn the_newest_readable_authorities_count() {
    let (server, client) = FakeServer::new(|sent, before| {
        if !sent.line.contains("watch=true") {
            return list(&config_map("1", &all()));
        }
        let damaged = json!({"requestheader-allowed-names": "front-proxy-client"});
        let event =
            |version, data| json!({"type": "MODIFIED", "object": config_map(version, &data)});
        // A watch that ends is opened again after a pause.
        match before {
            1 => Reply::Events(Vec::new()),
            2 => Reply::EventsAndError(
                vec![event("2", json!({"client-ca-file": "new"}))],
                std::io::ErrorKind::ConnectionReset,
            ),
            _ => Reply::EventsAndSilence(vec![event("3", damaged)]),
        }
    });
    let authorities = KubeClientAuthorities::new(Connection::over(client));
    let mut newest = authorities.authorities();
    let new = ClientAuthorities {
        client_ca: Some("new".to_owned()),
        request_header: None,
    };
    let reads = async {
        for expected in [expected(), new.clone()] {
            newest.changed().await.unwrap();
            assert_eq!(newest.borrow_and_update().as_deref(), Some(&expected));
        }
        while authorities.watch().unreadable == 0 {
            tokio::time::advance(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = authorities.run() => {}
        () = reads => {}
    }
    assert_eq!(newest.borrow().as_deref(), Some(&new));
    let lists = server.lines();
    assert!(
        lists[0].starts_with("GET /api/v1/namespaces/kube-system/configmaps?")
            && lists[0]
                .contains("fieldSelector=metadata.name%3Dextension-apiserver-authentication"),
        "{lists:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_field_that_is_missing_trusts_nobody() {
    let (_server, client) = FakeServer::new(|sent, _| {
        if sent.line.contains("watch=true") {
            Reply::EventsAndSilence(Vec::new())
        } else {
            list(&config_map(
                "1",
                &json!({"requestheader-username-headers": r#"["X-Remote-User"]"#}),
            ))
        }
    });
    let authorities = KubeClientAuthorities::new(Connection::over(client));
    let mut newest = authorities.authorities();
    tokio::select! {
        () = authorities.run() => {}
        changed = newest.changed() => changed.unwrap(),
    }
    assert_eq!(
        newest.borrow().as_deref(),
        Some(&ClientAuthorities::default())
    );
}
