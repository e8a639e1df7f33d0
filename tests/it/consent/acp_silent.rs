//! Connections of ACP clients that answer no ping.

use std::time::{Duration, Instant};

use serde_json::json;

use super::asking;
use crate::support::{ADMIN, Acp, settle};

/// Silence after which a client is taken for gone.
const SILENT_MAX: Duration = Duration::from_secs(45);

#[tokio::test]
async fn a_client_that_answers_no_ping_is_closed_and_no_other() {
    let (stage, tenant, _upstream) = asking(&[ADMIN], json!([])).await;
    let approver = tenant.approver().await;
    // one that reads nothing answers no ping
    let (mut deaf, mut well) = (Acp::open(&approver).await, Acp::open(&approver).await);
    let began = Instant::now();
    let open = async || stage.gateway.scrape().await.sum("mcpproxy_streams", &[("kind", "acp")]);
    assert_eq!(open().await, 2.0);
    tokio::select! {
        () = well.listen() => panic!("it answers pings"),
        () = settle(1.0, SILENT_MAX + Duration::from_secs(10), open) => {}
    }
    let silent = began.elapsed();
    assert!(silent > SILENT_MAX - Duration::from_secs(2), "closed after {silent:?}");
    assert!(deaf.next().await.is_none());
    assert_eq!(well.prompt().await, "No permission request waits for an answer.");
}
