//! Pins of resources that their server does not offer any more.

use serde_json::json;

use super::offers::Scene;
use crate::support::upstream::Offers;

/// Resources with these URIs, of so many bytes each.
fn resources(uris: impl Iterator<Item = String>, bytes: usize) -> Offers {
    let definition = |uri: String| json!({"uri": uri, "name": "x".repeat(bytes)}).to_string();
    Offers { resources: Some(uris.map(definition).collect()), ..Offers::default() }
}

#[tokio::test]
async fn of_texts_no_more_than_a_bound_is_kept() {
    let scene = Scene::with(Offers::resources(&[]), json!({"auto_approve": true})).await;
    for round in 0..8 {
        scene.offers(resources((0..2).map(|n| format!("x://{round}/{n}")), 120_000)).await;
    }
    scene.offers(Offers::resources(&[])).await;
    let count = async |what: &'static str| scene.stage.database.count(what).await;
    let bytes = count("select coalesce(sum(octet_length(approved_definition)), 0) from offer_pins").await;
    assert!((900_000..1 << 20).contains(&bytes), "{bytes}");
    let (pins, texts) =
        ("select count(approved_pin) from offer_pins", "select count(approved_definition) from offer_pins");
    assert_eq!((count(pins).await, count(texts).await), (16, 8));
    // a pin without its text is a pin
    scene.tenant.platform.patch("/api/v1/servers/up", &json!({"auto_approve": false})).await.expect(200);
    scene.offers(resources(["x://0/0".to_owned()].into_iter(), 120_000)).await;
    assert_eq!(scene.listed().await[1], ["x://0/0"]);
}

#[tokio::test]
async fn a_server_that_invents_uris_for_ever_keeps_the_newest_pins_and_every_block() {
    let scene =
        Scene::with(resources(["x://blocked".to_owned()].into_iter(), 1), json!({"auto_approve": true}))
            .await;
    let body = json!({"uri": "x://blocked"});
    scene.tenant.platform.post("/api/v1/servers/up/resources/block", &body).await.expect(200);
    for round in 0..4 {
        scene.offers(resources((0..5000).map(|n| format!("x://{round}/{n}")), 1)).await;
    }
    let database = &scene.stage.database;
    assert_eq!(database.count("select count(*) from offer_pins").await, 15_001);
    assert_eq!(database.count("select count(*) from offer_pins where name like 'x://0/%'").await, 0);
    assert_eq!(scene.code("x://blocked").await, "-32602", "no template fits it");
    scene.offers(resources(["x://blocked".to_owned()].into_iter(), 1)).await;
    assert_eq!(scene.code("x://blocked").await, "tool_blocked");
}
