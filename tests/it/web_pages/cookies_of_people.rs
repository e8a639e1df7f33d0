//! Cookies that people keep, who call with tokens of a provider.

use serde_json::json;

use super::cookies::{call, rows, sent, site};
use super::execution::shop_with;
use crate::support::{Gateway, People, Stage};

#[tokio::test]
async fn they_are_the_persons_whatever_the_token_and_end_with_a_block() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let site = site(&["session=s; Path=/"]).await;
    let tenant = shop_with(&stage, &site, &["/list"], json!({"execute": "policy", "cookies": "kept"})).await;
    let people = People::of(&stage, &tenant, "acme").await;
    let ana = people.person("agent", json!({})).await;
    let ben = people.person("agent", json!({})).await;
    // the first call may come before the person is stored
    call(&ana).await.ok();
    site.take();
    let again = people.again(&ana, "person-0");
    for caller in [other.ask_as(&ana), again.clone()] {
        call(&caller).await.ok();
        let sent: Vec<String> = sent(&site).into_iter().filter(|cookies| !cookies.is_empty()).collect();
        assert_eq!(sent, ["session=s", "session=s"]);
    }
    call(&ben).await.ok();
    assert_eq!(sent(&site), ["", ""], "another person has none");
    assert_eq!(rows(&stage).await, 2);

    let block = |act: &str| format!("/api/v1/identities/{}/{act}", ana.id);
    tenant.platform.post(&block("block"), &json!({})).await.expect(200);
    assert_eq!(rows(&stage).await, 1, "those of the person who is blocked are gone");
}
