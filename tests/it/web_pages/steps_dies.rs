//! A replica dies between the commit of a ledger and the form.

use serde_json::json;
use tokio::sync::watch;

use super::execution::{SOON, left_behind, shop_with, thanks, theme};
use super::form_site::{FormSite, Reply};
use super::steps::{drafts, invoke, set};
use crate::support::{Gateway, OwnPostgres, Stage, settle};

/// The commit of the ledger waits for a standby that does not answer: it is a commit, and its replica does not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_draft_whose_ledger_is_committed_is_never_sent_again() {
    let postgres = OwnPostgres::start().await;
    let database = postgres.database();
    Gateway::migrate(&database);
    let mut stage = Stage { gateway: Gateway::start(&database, &[]).await, database };
    let page = || Reply::page(&theme("t", ""));
    let site = FormSite::start(&[("GET /list", page()), ("POST /theme", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/list"], json!({"execute": "policy"})).await;
    let agent = tenant.agent().await;
    set(&agent, "red").await.ok();
    let (open, gate) = watch::channel(false);
    site.put("GET /list", page().behind(gate));
    let calling = agent.clone();
    let call = tokio::spawn(async move {
        invoke(&calling).await;
    });
    // the record of the call is committed by now, and nothing of its ledger
    settle(1, SOON, || async { site.count("GET") }).await;
    postgres.wait_for_standby("nobody").await;
    open.send(true).unwrap();
    let waiting = "select count(*) from pg_stat_activity a join pg_locks l using (pid)
        where a.wait_event = 'SyncRep' and l.relation = 'web_provenance'::regclass";
    settle(1, SOON, || async { stage.database.count(waiting).await.min(1) }).await;
    stage.gateway.kill();
    call.await.unwrap();
    postgres.wait_for_standby("").await;
    settle(0, SOON, || drafts(&stage)).await;

    let other = Gateway::start(&stage.database, &[]).await;
    assert_eq!(
        left_behind(&stage, &other, &tenant).await,
        ["recorded data color sets-the-value", "recorded submit #theme sends-the-form-by-post"]
    );
    invoke(&other.ask_as(&agent)).await.refused("invalid_arguments");
    assert_eq!(site.count("POST"), 0);
}
