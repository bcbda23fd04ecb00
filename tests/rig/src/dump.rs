//! The state of a cluster whose test failed: all objects as JSON, and the logs of all components. Unreadable parts are
//! left out.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use kube::{
    Client,
    api::{Api, DynamicObject, ListParams},
    discovery::{ApiResource, Discovery, verbs},
};

use crate::{Error, Result, cluster::client_of, place::failures};

/// The time for the dump of a failed test.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Copies logs, and no file that holds a key.
pub(crate) fn logs(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(Error::file("create", to))?;
    for entry in fs::read_dir(from)
        .map_err(Error::file("read", from))?
        .flatten()
    {
        let path = entry.path();
        let is_log = path
            .extension()
            .is_some_and(|end| end == "log" || end == "jsonl");
        if is_log {
            fs::copy(&path, to.join(entry.file_name())).map_err(Error::file("copy", &path))?;
        }
    }
    Ok(())
}

/// Writes one file per kind that has objects.
pub(crate) async fn objects(client: &Client, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(Error::file("create", to))?;
    let Ok(discovery) = Discovery::new(client.clone()).run().await else {
        return Ok(());
    };
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if capabilities.supports_operation(verbs::LIST) && resource.kind != "Secret" {
                objects_of(client, &resource, to).await?;
            }
        }
    }
    Ok(())
}

async fn objects_of(client: &Client, resource: &ApiResource, to: &Path) -> Result<()> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let Ok(mut list) = api.list(&ListParams::default()).await else {
        return Ok(());
    };
    if list.items.is_empty() {
        return Ok(());
    }
    for object in &mut list.items {
        object.metadata.managed_fields = None;
    }
    let content = serde_json::to_string_pretty(&list.items).map_err(Error::json("an object"))?;
    let path = to.join(format!("{}.{}.json", resource.plural, resource.group));
    fs::write(&path, content).map_err(Error::file("write", &path))
}

/// Dumps from inside an unwinding thread, which may or may not be in an async runtime: a thread
/// with a runtime of its own does the work.
pub(crate) fn after_panic(run: &Path, kubeconfig: &Path) -> Result<PathBuf> {
    let test = thread::current()
        .name()
        .unwrap_or("unnamed")
        .replace("::", "-");
    let run_name = run
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let to = failures().join(format!("{test}-{run_name}"));
    logs(run, &to)?;
    let (kubeconfig, folder) = (kubeconfig.to_path_buf(), to.clone());
    let work = thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(Error::file("start a runtime for", &folder))?;
        runtime.block_on(async {
            let dumping = async { objects(&client_of(&kubeconfig).await?, &folder).await };
            // The time is up: what was written so far is the dump.
            tokio::time::timeout(TIMEOUT, dumping)
                .await
                .unwrap_or(Ok(()))
        })
    });
    work.join().unwrap_or(Ok(()))?;
    Ok(to)
}
