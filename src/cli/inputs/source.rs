//! The objects that a command works on, from manifests or from a cluster, and the histories that belong to them.

use foretide_backtest::{
    inputs::{AutoscalerWorkload, convert, without_history},
    manifest::Document,
    template::{self, TemplateSource},
};
use foretide_domain::{ScaleTarget, workload::Workload};
use tokio::runtime::Runtime;

use super::{Inputs, documents, notes};
use crate::cli::{
    cluster::ReadCluster,
    history::{Access, Histories, Reading},
    output::Failure,
};
use foretide_base::machine::Machine;

/// The objects of a command, and the means to read more.
pub struct Source<'a> {
    inputs: &'a Inputs,
    runtime: &'a Runtime,
    machine: &'a Machine,
    cluster: Option<ReadCluster<'a>>,
    /// All objects, including those made by a conversion.
    pub documents: Vec<Document>,
    /// The converted objects and their differences, a sentence each.
    pub converted: Vec<String>,
}

// === impl Source ===

impl<'a> Source<'a> {
    /// The objects of the manifests, or of the cluster.
    ///
    /// # Errors
    /// A file or the cluster cannot be read.
    pub fn new(
        inputs: &'a Inputs,
        runtime: &'a Runtime,
        machine: &'a Machine,
    ) -> Result<Self, Failure> {
        let cluster = if inputs.object.is_some() || inputs.cluster.is_given() {
            Some(inputs.cluster.open(runtime, machine)?)
        } else {
            None
        };
        let mut documents = match (&inputs.object, &cluster) {
            (Some(object), Some(cluster)) => {
                let namespace = inputs.namespace.as_deref();
                let default = namespace.unwrap_or_else(|| cluster.namespace());
                let (namespace, name) = object.split_once('/').unwrap_or((default, object));
                vec![cluster.autoscaler(namespace, name)?]
            }
            _ => documents(&inputs.files)?,
        };
        let converted = convert(&mut documents, inputs.name.as_deref())?;
        Ok(Self {
            inputs,
            runtime,
            machine,
            cluster,
            documents,
            converted,
        })
    }

    /// The history of each metric, up to `reading.until` if it is read from Prometheus, with notes on their missing and
    /// doubtful parts, too. Metrics without a history are removed from the workload.
    ///
    /// # Errors
    /// A history is missing, or cannot be read.
    pub fn histories(
        &self,
        chosen: &mut AutoscalerWorkload,
        reading: &mut Reading<'_>,
    ) -> Result<Histories, Failure> {
        let history = &self.inputs.history;
        if !history.is_given() {
            let read = self.inputs.recorded(&chosen.workload)?;
            let missing = without_history(&mut chosen.workload, &read);
            return Ok(Histories {
                notes: notes(&read),
                read,
                missing,
            });
        }
        let namespace = self.namespace(&chosen.workload.target)?;
        let AutoscalerWorkload {
            autoscaler,
            workload,
        } = chosen;
        workload.target.namespace = namespace;
        let access = Access {
            runtime: self.runtime,
            machine: self.machine,
            cluster: self.cluster.as_ref(),
            scope: self.inputs.promql_scope,
        };
        let mut found = history.read(autoscaler, workload, &access, reading)?;
        found.notes += &notes(&found.read);
        Ok(found)
    }

    /// The sources of a pod's requests; the workload is read from the cluster if it is not in a manifest.
    ///
    /// # Errors
    /// The workload cannot be read.
    pub fn templates(&mut self, workload: &Workload) -> Result<TemplateSource<'_>, Failure> {
        let (requests, target) = (&self.inputs.request, &workload.target);
        let mut documents = self.documents.iter();
        let is_known = !requests.is_empty() || documents.any(|it| template::is_target(it, target));
        if let Some(cluster) = self.cluster.as_ref().filter(|_| !is_known) {
            let target = ScaleTarget {
                namespace: self.namespace(target)?,
                ..target.clone()
            };
            self.documents.push(cluster.workload(&target)?);
        }
        Ok(TemplateSource {
            documents: &self.documents,
            requests,
        })
    }

    /// The namespace of a target, for requests about it.
    fn namespace(&self, target: &ScaleTarget) -> Result<String, Failure> {
        let flag = self.inputs.namespace.as_deref();
        let context = self.cluster.as_ref().map(ReadCluster::namespace);
        let given = Some(target.namespace.as_str()).filter(|written| !written.is_empty());
        let namespace = given.or(flag).or(context).map(str::to_owned);
        namespace.ok_or_else(|| {
            Failure::usage(
                "-n NAMESPACE is required: the manifest of the autoscaler names no namespace",
            )
        })
    }
}
