//! The traits between the controller and the forecaster on one side and the adapters on the other.
//!
//! A port takes and returns domain values, and its errors say whether to try again. How an answer is fetched is up to
//! the adapter: `adapters::kube` implements [`Workloads`], [`Cluster`], [`Member`], [`LeaseStore`] and [`AccessReviewer`],
//! `adapters::members` implements [`Fleet`], `adapters::prometheus` implements [`DemandQueries`] and [`HistoryReader`].

mod access;
mod autoscalers;
mod certificates;
mod cluster;
mod history;
mod history_server;
mod lease;
mod members;
mod metric_sources;

pub use access::{
    Access, AccessReviewer, BearerToken, ClientAuthorities, PAGE_AUDIENCE, RequestHeader,
    ResourceAccess, User,
};
pub use autoscalers::Autoscalers;
pub use certificates::{CertificateLifetimes, CertificateSource, ClientCertificates, SelfManaged};
pub use cluster::{
    Cluster, ClusterError, EventNote, HpaView, KedaPause, ListedAutoscalers, MetricQuery,
    ObjectKey, ScaleView, UnusableCopies, Workloads,
};
pub use history::{
    Demand, DemandQueries, HistoryError, HistoryQuery, HistoryReader, MemberSeries,
    QUERY_ANNOTATION, Resolution,
};
pub use history_server::{
    Authorization, CertificateFiles, CredentialExpiry, CredentialFiles, CustomHeader,
    HistoryServer, ServerError, ServerHealth, Setting,
};
pub use lease::{LeaseRecord, LeaseStore, StoredLease};
pub use members::{Fleet, Member, MemberView};
pub use metric_sources::{
    ListedPod, PodLister, UpstreamAdapter, UpstreamError, UpstreamRequest, UpstreamSettings,
};
