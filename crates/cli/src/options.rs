//! The options of each command. One definition serves flag, environment, file and help: see
//! [`crate::settings`].

mod agent;
mod demo;
mod dns_record;
mod doctor;
mod edge;
mod edge_address;
mod fastopen;
mod get;
mod keys;
mod lab;
mod lab_report;
mod lab_site;
mod log;
mod managed;
mod names;
mod pageload;
mod pageload_db;
mod pageload_plan;
mod pageload_record;
mod place;
mod port_context;
mod run;
mod sessions;
mod upstream;
mod value;

pub use agent::AgentOptions;
pub use demo::DemoOptions;
pub use dns_record::DnsRecordOptions;
pub use doctor::DoctorOptions;
pub use edge::{CertificateFiles, EarlyDataRequests, EdgeOptions, TicketPeers, TlsVersion};
pub(crate) use edge_address::edge_lookup;
pub use edge_address::{EdgeAddress, EdgeAddresses};
pub use fastopen::{
    AttachClientOptions, AttachOptions, AttachServerOptions, AttachSide, DetachOptions,
    FastopenCommand, FastopenOptions, FastopenSide, StatusOptions,
};
pub use get::GetOptions;
pub use keys::{
    KeysCommand, KeysExportOptions, KeysNewOptions, KeysOptions, KeysRotateOptions, KeysShowOptions,
};
pub use lab::{LabCommand, LabListOptions, LabOptions, LabRunOptions};
pub use lab_report::LabReportOptions;
pub use lab_site::LabSiteOptions;
pub use log::{LogFormat, LogOptions};
pub use managed::{ClientCertificate, ManagedOptions};
pub use names::{NameMap, NamePattern};
pub use pageload::{PageloadCommand, PageloadOptions, ReplayOptions, SharingOptions, ShowOptions};
pub use pageload_db::{
    DbBuildOptions, DbCheckOptions, DbCommand, DbExportOptions, DbFetchOptions, DbFormat,
    DbKeygenOptions, DbName, DbOptions, DbShowOptions,
};
pub use pageload_plan::{Arm, PlanOptions, SimulateOptions, ValidateOptions};
pub(crate) use pageload_plan::{DeliveryName, ProfileName, SimulatorOptions, Visit, rate};
pub use pageload_record::{BrowserTls, RecordOptions};
pub use place::{FilterPlace, KeySource, RedisAddress};
pub use port_context::PortContext;
pub use run::RunOptions;
pub use sessions::{
    AgentSocket, SessionsCommand, SessionsForgetOptions, SessionsListOptions, SessionsOptions,
    SessionsPolicyOptions, SharingName,
};
pub use upstream::{IsolationName, OptimisticName, UpstreamOptions, UpstreamUrl};
pub(crate) use value::emulated_rtt;
pub use value::{HostPort, OpeningPolicy, Origin, OriginServer, Service};

/// How `--help` of a daemon says where else its options may come from.
const SOURCES: &str = "\
Every option may also come from the environment or from the file given with --config.
A flag goes before the environment, the environment before the file, the file before
the default.";
