//! Counters and durations of the gateway, under their exported names.

use std::fmt;

use super::page::{Labels, MetricsPage};
use crate::domain::measure::{Between, OTHER, OperationKey, Series};
use crate::domain::refusal::Code;
use crate::faces::Faces;
use crate::gateway::{
    ConsentMeasures, Deliveries, LogMeasures, LogVitals, LostSpans, Mailbox, MemoryVitals, Readiness, Vitals,
};
use crate::store::StoreVitals;

const SERVER_OPERATIONS: &str = "How long MCP clients waited for an answer";
const CLIENT_OPERATIONS: &str = "How long MCP servers took to answer, without waiting for a turn";
const SERVER_SESSIONS: &str = "How long sessions lasted whose client said that it ends them";
const CLIENT_SESSIONS: &str = "How long sessions with MCP servers lasted that have ended";

pub(super) fn write(faces: &Faces, page: &mut MetricsPage<'_>) -> fmt::Result {
    let gateway = &faces.gateway;
    let (served, asked) = (&faces.measures, gateway.upkeep.upstream_measures());
    operations(page, ("mcp_server_operation_duration_seconds", SERVER_OPERATIONS), &served.operations)?;
    operations(page, ("mcp_client_operation_duration_seconds", CLIENT_OPERATIONS), &asked.operations)?;
    sessions(page, ("mcp_server_session_duration_seconds", SERVER_SESSIONS), &served.sessions)?;
    sessions(page, ("mcp_client_session_duration_seconds", CLIENT_SESSIONS), &asked.sessions)?;
    let added = "What the gateway added to calls that it sent on, by the tier of the tool";
    let overhead = gateway.calls.overhead.all();
    let overhead = overhead.iter().map(|(tier, took)| (vec![("tier", *tier)], took.seen()));
    page.histograms("mcpproxy_call_overhead_seconds", added, overhead)?;
    consent(page, gateway.consent.measures())?;
    webhooks(page, gateway.consent.deliveries())?;
    replies(page, &gateway.mailbox)?;
    let vitals = gateway.upkeep.vitals();
    attempts(page, gateway.log.activity.measures())?;
    shed(page, faces, &vitals, gateway.log.activity.measures())?;
    log(page, gateway.log.activity.measures(), &vitals.log)?;
    replica(page, &vitals)?;
    upstreams(page, &vitals)?;
    clients(page, faces)?;
    spans(page, gateway.options.tracer.as_ref().map(|tracer| tracer.lost()).unwrap_or_default())?;
    store(page, &vitals.store)
}

/// Returns the labels that operations and sessions share.
fn between(between: Between, error: Option<&'static str>) -> Labels {
    let mut labels = vec![("network_transport", between.transport.as_str())];
    labels.extend(between.version.map(|version| ("mcp_protocol_version", version)));
    labels.extend(error.map(|error| ("error_type", error)));
    labels
}

fn operations(
    page: &mut MetricsPage<'_>,
    (name, help): (&str, &str),
    series: &Series<OperationKey>,
) -> fmt::Result {
    let labels = |operation: &OperationKey| {
        let mut labels = between(operation.between, operation.error);
        labels.push(("mcp_method_name", operation.method));
        labels
            .extend((operation.method == "tools/call").then_some(("gen_ai_operation_name", "execute_tool")));
        labels.extend(operation.tool.map(|tool| ("gen_ai_tool_name", tool)));
        labels.extend(operation.code.map(|code| ("rpc_response_status_code", code)));
        labels
    };
    let all = series.all();
    page.histograms(name, help, all.iter().map(|(operation, took)| (labels(operation), took.seen())))
}

fn sessions(
    page: &mut MetricsPage<'_>,
    (name, help): (&str, &str),
    series: &Series<(Between, Option<&'static str>)>,
) -> fmt::Result {
    let all = series.all();
    page.histograms(name, help, all.iter().map(|((link, error), took)| (between(*link, *error), took.seen())))
}

fn attempts(page: &mut MetricsPage<'_>, log: &LogMeasures) -> fmt::Result {
    let attempts = log.attempts.all();
    let attempts = attempts.iter().map(|(attempted, count)| {
        let mut labels =
            vec![("type", attempted.kind), ("source", attempted.source), ("status", attempted.status)];
        labels.extend(attempted.tier.map(|tier| ("tier", tier)));
        (labels, count.get())
    });
    page.counters(
        "mcpproxy_attempts",
        "Attempts that went into the activity log, by how they ended",
        attempts,
    )?;
    let refusals = log.refusals.all();
    let refusals =
        refusals.iter().map(|(code, count)| (vec![("code", code.map_or(OTHER, Code::as_str))], count.get()));
    page.counters("mcpproxy_refusals", "Attempts that the gateway refused, or that failed, by code", refusals)
}

/// Writes how permission requests end, and how long people take. Times of people are in no other metric.
fn consent(page: &mut MetricsPage<'_>, measures: &ConsentMeasures) -> fmt::Result {
    let pending =
        "Permission requests of all tenants that wait for a person, as each replica has counted them last";
    let count = measures.pending().map(|count| count as f64);
    page.maybe_gauge("mcpproxy_consent_pending_requests", pending, count)?;
    let ends = measures.ends.all();
    let ends = ends.iter().map(|(end, count)| {
        let mut labels = vec![("outcome", end.state.as_str())];
        labels.extend(end.via.map(|via| ("via", via.as_str())));
        (labels, count.get())
    });
    let decided = "Permission requests that were decided, or ended without a person";
    page.counters("mcpproxy_consent_decisions", decided, ends)?;
    let waits = measures.waits.all();
    let waits = waits.iter().map(|(via, took)| (vec![("via", via.as_str())], took.seen()));
    let took = "How long people took to decide";
    page.histograms("mcpproxy_consent_decision_duration_seconds", took, waits)
}

/// Writes how deliveries to webhooks ended. All outcomes are present from the start.
fn webhooks(page: &mut MetricsPage<'_>, deliveries: &Deliveries) -> fmt::Result {
    let outcomes = [
        ("confirmed", &deliveries.confirmed),
        ("failed", &deliveries.failed),
        ("given_up", &deliveries.given_up),
        ("dropped", &deliveries.dropped),
    ];
    let outcomes = outcomes.map(|(outcome, count)| (vec![("outcome", outcome)], count.get()));
    let help = "Tries to tell webhooks of permission requests, and events that are not tried any more";
    page.counters("mcpproxy_webhook_deliveries", help, outcomes)
}

/// Writes what became of clients' replies, and how many are waited for.
fn replies(page: &mut MetricsPage<'_>, mailbox: &Mailbox) -> fmt::Result {
    let waiting = "Questions to handshake clients that wait for a reply";
    page.gauge("mcpproxy_client_questions", waiting, mailbox.waiting() as f64)?;
    let ends = mailbox.ends.all();
    let ends = ends.iter().map(|(end, count)| (vec![("outcome", end.as_str())], count.get()));
    page.counters("mcpproxy_client_replies", "Replies of handshake clients to questions", ends)
}

/// Writes how much load was shed. All reasons are present from the start.
fn shed(page: &mut MetricsPage<'_>, faces: &Faces, vitals: &Vitals, log: &LogMeasures) -> fmt::Result {
    let refusals = log.refusals.all();
    let refused = |code: Code| {
        let of_code = refusals.iter().filter(|(known, _)| *known == Some(code));
        of_code.map(|(_, count)| count.get()).sum::<u64>()
    };
    let shed = [
        ("rate_limited", vitals.rate_limited),
        ("overloaded", refused(Code::Overloaded)),
        ("record_unavailable", refused(Code::RecordUnavailable) + log.no_room.get()),
        ("too_many_streams", faces.streams.refused()),
    ];
    let shed = shed.into_iter().map(|(reason, count)| (vec![("reason", reason)], count));
    page.counters("mcpproxy_shed", "Requests turned away because they were too much", shed)?;
    let strangers = "Requests without a valid key";
    page.counter("mcpproxy_unauthenticated_requests", strangers, vitals.strangers as f64)
}

fn log(page: &mut MetricsPage<'_>, measures: &LogMeasures, now: &LogVitals) -> fmt::Result {
    let parts = [("opening", now.opening), ("ending", now.ending)];
    let parts = parts.map(|(lane, depth)| (vec![("lane", lane)], depth as f64));
    let depth = "Records that wait to be committed: before their call, and after it";
    page.gauges("mcpproxy_activity_commit_queue_records", depth, parts)?;
    let buffer = "Attempts that are unfinished, or whose record is not written yet";
    page.gauge("mcpproxy_activity_buffer_records", buffer, now.records as f64)?;
    let most = "How many attempts may be unfinished or unwritten";
    page.gauge("mcpproxy_activity_buffer_records_max", most, now.records_max as f64)?;
    page.gauge("mcpproxy_activity_buffer_bytes", "What their records take, in bytes", now.bytes as f64)?;
    let most = "What their records may take, in bytes";
    page.gauge("mcpproxy_activity_buffer_bytes_max", most, now.bytes_max as f64)?;
    let lanes = [("opening", &measures.opened), ("ending", &measures.closed)];
    let lanes = lanes.map(|(lane, took)| (vec![("lane", lane)], took.seen()));
    page.histograms("mcpproxy_activity_commit_duration_seconds", "How long committing a batch took", lanes)?;
    let lost = "Records that the database refused and that are not kept";
    page.counter("mcpproxy_activity_records_lost", lost, measures.lost.get() as f64)?;
    let stubs = "Records of whose texts the database took none";
    page.counter("mcpproxy_activity_records_stubbed", stubs, measures.stubs.get() as f64)
}

fn replica(page: &mut MetricsPage<'_>, vitals: &Vitals) -> fmt::Result {
    let is_ready = matches!(vitals.readiness, Readiness::Ready | Readiness::Degraded);
    page.gauge("mcpproxy_ready", "1 while this replica should get traffic", f64::from(u8::from(is_ready)))?;
    let age = "How long ago the database confirmed what this replica knows, in seconds";
    let confirmed = vitals.snapshot_age.map(|age| age.as_secs_f64());
    page.maybe_gauge("mcpproxy_snapshot_age_seconds", age, confirmed)?;
    let lag = "By how many revisions the tenant that is behind the most is behind the database";
    page.gauge("mcpproxy_revision_lag", lag, vitals.revision_lag as f64)?;
    let listens = "1 while changes are heard of at once, not only by asking";
    page.gauge("mcpproxy_listener_connected", listens, f64::from(u8::from(vitals.is_listening)))?;
    page.gauge("mcpproxy_tenants", "Tenants that this replica serves", vitals.tenants as f64)?;
    let replicas = "Replicas that live, as this one was told last";
    page.gauge("mcpproxy_replicas", replicas, f64::from(vitals.replicas))
}

fn upstreams(page: &mut MetricsPage<'_>, vitals: &Vitals) -> fmt::Result {
    let (pool, counts) = (&vitals.upstreams, &vitals.servers);
    let by_state = |states: &[(&'static str, usize)]| -> Vec<(Labels, f64)> {
        states.iter().map(|(state, count)| (vec![("state", *state)], *count as f64)).collect()
    };
    let servers = [
        ("connected", counts.connected),
        ("disconnected", counts.disconnected),
        ("disabled", counts.disabled),
        ("quarantined", counts.quarantined),
    ];
    let help = "Servers of the tenants that this replica serves, by state";
    page.gauges("mcpproxy_upstream_servers", help, by_state(&servers))?;
    let breakers = [("closed", pool.closed), ("open", pool.open), ("half_open", pool.half_open)];
    let help = "Servers that this replica has called, by the state of their breaker";
    page.gauges("mcpproxy_upstream_breakers", help, by_state(&breakers))?;
    page.gauge("mcpproxy_upstream_programs", "Programs of stdio servers that run", pool.programs as f64)?;
    let opened = "TCP connections opened to servers";
    page.counter("mcpproxy_upstream_connects", opened, pool.tcp_connects as f64)?;
    let announcing = "Streams on which servers announce changes to this replica";
    page.gauge("mcpproxy_upstream_streams", announcing, vitals.announcing as f64)?;
    let pending = "Memory of answers that are not handed on yet, in bytes";
    page.gauge("mcpproxy_pending_answer_bytes", pending, pool.memory.answer_bytes as f64)?;
    memory(page, &pool.memory)
}

fn memory(page: &mut MetricsPage<'_>, memory: &MemoryVitals) -> fmt::Result {
    let held = [("request", memory.request_bytes), ("answer", memory.answer_bytes)];
    let held = held.map(|(purpose, bytes)| (vec![("purpose", purpose)], bytes as f64));
    page.gauges("mcpproxy_memory_held_bytes", "Memory that requests and answers hold, in bytes", held)?;
    let most = "Memory that requests and answers together may hold, in bytes";
    page.gauge("mcpproxy_memory_held_bytes_max", most, memory.bytes_max as f64)?;
    let refused = [("request", memory.refused_requests), ("answer", memory.refused_answers)];
    let refused = refused.map(|(purpose, count)| (vec![("purpose", purpose)], count));
    page.counters("mcpproxy_memory_refusals", "Requests and answers refused for want of memory", refused)
}

fn clients(page: &mut MetricsPage<'_>, faces: &Faces) -> fmt::Result {
    let connections = &faces.connections;
    page.gauge("mcpproxy_client_connections", "Client connections open", connections.open() as f64)?;
    let most = "Client connections that may be open";
    page.gauge("mcpproxy_client_connections_max", most, connections.max() as f64)?;
    let closed = connections.closed();
    let closed = [("full", closed.full), ("address", closed.address), ("share", closed.share)];
    let closed = closed.map(|(reason, count)| (vec![("reason", reason)], count));
    let help = "Client connections that were closed for others, or refused";
    page.counters("mcpproxy_client_connections_closed", help, closed)?;
    let streams = faces.streams.open_now().map(|(kind, open)| (vec![("kind", kind.as_str())], open as f64));
    page.gauges("mcpproxy_streams", "Streams that clients hold open, by what they are for", streams)
}

/// Writes how many spans were lost. All reasons are present from the start, also without a collector.
fn spans(page: &mut MetricsPage<'_>, lost: LostSpans) -> fmt::Result {
    let lost = [("full", lost.full), ("share", lost.over_share), ("unsent", lost.unsent)];
    let lost = lost.map(|(reason, count)| (vec![("reason", reason)], count));
    page.counters("mcpproxy_spans_lost", "Spans of traces that the collector was not told of", lost)
}

fn store(page: &mut MetricsPage<'_>, store: &StoreVitals) -> fmt::Result {
    let up = f64::from(u8::from(store.is_reachable));
    page.gauge("mcpproxy_database_up", "1 while the database answers", up)?;
    let connections = store.pools.iter().flat_map(|pool| {
        [("used", pool.used), ("idle", pool.idle)]
            .map(|(state, count)| (vec![("pool", pool.name), ("state", state)], count as f64))
    });
    let help = "Connections to the database, by pool";
    page.gauges("mcpproxy_database_connections", help, connections)?;
    let most = store.pools.iter().map(|pool| (vec![("pool", pool.name)], f64::from(pool.max)));
    page.gauges("mcpproxy_database_connections_max", "Connections that a pool may have", most)?;
    let waiting = store.pools.iter().map(|pool| (vec![("pool", pool.name)], pool.waiting as f64));
    page.gauges("mcpproxy_database_waiting", "Work that waits for a connection, by pool", waiting)?;
    let ahead = store.partitions_ahead_days.map(|days| days as f64);
    let help = "Days ahead for which the activity log has a partition, as of the last upkeep";
    page.maybe_gauge("mcpproxy_partitions_ahead", help, ahead)?;
    let held = |is_held: bool| f64::from(u8::from(is_held));
    let leases = store.leases.iter().map(|(name, is_held)| (vec![("lease", *name)], held(*is_held)));
    page.gauges("mcpproxy_lease_held", "1 for what this replica alone sees to", leases)
}
