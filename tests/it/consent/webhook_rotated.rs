//! Another secret of a webhook: for a day its receiver can verify events with either.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::asking;
use super::webhook::{HOOK, put, verify_all};
use crate::support::{Api, Delivered, Gateway, Receiver};

const SOON: Duration = Duration::from_secs(5);

/// An event that this gateway sends.
async fn event(api: &Api, receiver: &Receiver) -> Delivered {
    let before = receiver.delivered().len();
    let tested = api.post(&format!("{HOOK}/test"), &json!({})).await.expect(200);
    assert_eq!(tested["delivered"], true, "{tested}");
    receiver.expect(before + 1, SOON).await.pop().unwrap()
}

/// Time until which the secret before signs too, as a replica shows it.
async fn until(api: &Api) -> Value {
    api.get(HOOK).await.expect(200)["previous_until"].clone()
}

#[tokio::test]
async fn two_secrets_sign_for_a_day_or_until_the_new_one_is_set_again() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (here, receiver) = (&tenant.platform, Receiver::start().await);
    let there = other.ask_as(here);
    assert_eq!(put(here, &receiver.url, 7).await["previous_until"], Value::Null);
    verify_all(&event(here, &receiver).await, &[&[7; 32]]);

    let shown = put(&there, &receiver.url, 8).await;
    let ends: DateTime<Utc> = shown["previous_until"].as_str().unwrap().parse().unwrap();
    let left = ends - Utc::now();
    assert!(left > TimeDelta::minutes(24 * 60 - 1) && left <= TimeDelta::hours(24), "{left}");
    assert_eq!(until(here).await, shown["previous_until"]);
    for api in [here, &there] {
        verify_all(&event(api, &receiver).await, &[&[8; 32], &[7; 32]]);
    }
    // one before at most
    put(here, &receiver.url, 9).await;
    verify_all(&event(&there, &receiver).await, &[&[9; 32], &[8; 32]]);
    assert_eq!(put(&there, &receiver.url, 9).await["previous_until"], Value::Null);
    verify_all(&event(here, &receiver).await, &[&[9; 32]]);

    put(here, &receiver.url, 10).await;
    let mut connection = stage.database.connect().await;
    let row = "select to_jsonb(w)::text from consent_webhooks w";
    let row: String = sqlx::query_scalar(row).fetch_one(&mut connection).await.unwrap();
    for of in [9, 10] {
        let [hex, encoded] = [format!("{of:02x}").repeat(32), STANDARD.encode([of; 32])];
        assert!(!row.contains(&hex) && !row.contains(&encoded), "{row}");
    }
    let over = "update consent_webhooks set previous_until = now()";
    sqlx::query(over).execute(&mut connection).await.unwrap();
    verify_all(&event(&there, &receiver).await, &[&[10; 32]]);
    assert_eq!(until(here).await, Value::Null);
}

#[tokio::test]
async fn another_receiver_gets_no_signature_of_the_secret_before() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (api, first, second) = (&tenant.platform, Receiver::start().await, Receiver::start().await);
    put(api, &first.url, 7).await;
    put(api, &first.url, 8).await;
    assert_eq!(put(api, &second.url, 9).await["previous_until"], Value::Null);
    verify_all(&event(api, &second).await, &[&[9; 32]]);
    // a secret that does not open, as after a change by a replica of the release before, keeps nothing back
    put(api, &second.url, 10).await;
    let mut connection = stage.database.connect().await;
    let broken = "update consent_webhooks set previous_sealed = substr(previous_sealed, 2)";
    sqlx::query(broken).execute(&mut connection).await.unwrap();
    verify_all(&event(api, &second).await, &[&[10; 32]]);
    // nor does a present one that does not open
    let lost = "update consent_webhooks set sealed = substr(sealed, 2)";
    sqlx::query(lost).execute(&mut connection).await.unwrap();
    assert_eq!(put(api, &second.url, 11).await["previous_until"], Value::Null);
    verify_all(&event(api, &second).await, &[&[11; 32]]);
}
