use super::*;

/// Noon of 31 January 2026.
fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_769_860_800, 0).unwrap()
}

fn read(query: &str) -> Result<ActivityFilter, GatewayError> {
    filter(&Params::parse(Some(query), PARAMS)?, now())
}

#[test]
fn windows() {
    let at = |text: &str| DateTime::parse_from_rfc3339(text).unwrap().to_utc();
    for (query, start, end) in [
        ("", "2026-01-24T12:00:00Z", "2026-01-31T12:01:00Z"),
        ("start_time=2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z", "2026-01-31T12:01:00Z"),
        ("end_time=2020-01-08T00:00:00Z", "2020-01-01T00:00:00Z", "2020-01-08T00:00:00Z"),
        ("start_time=2020-01-01T00:00:00Z&end_time=2020-01-01T01:00:00%2B01:00", "", ""),
        ("start_time=2026-01-31T12:02:00Z", "", ""),
    ] {
        match read(query) {
            Ok(filter) => assert_eq!((filter.start, filter.end), (at(start), at(end)), "{query}"),
            Err(error) => assert!(start.is_empty() && named(&error) == "start_time", "{query} {error:?}"),
        }
    }
}

fn named(error: &GatewayError) -> &str {
    match error {
        GatewayError::Invalid { field: Some(field), .. } => field,
        other => panic!("{other:?}"),
    }
}

#[test]
fn filters_are_taken_or_named() {
    let id = "018f5e2c-0000-7000-8000-000000000001";
    let query = format!(
        "type=tool_call&source=mcp&server=fs&tool=read&status=blocked&tier=unknown&not_read=true&intent_type=write&key={id}&owner=bob%20b&client_address=::ffff:192.0.2.1\
         &session_id=s&request_id=r&decision=would_ask&consent_id={id}"
    );
    let filter = read(&query).unwrap();
    assert_eq!((filter.kind, filter.source), (Some(RecordKind::ToolCall), Some(Source::Mcp)));
    assert_eq!((filter.server.as_deref(), filter.tool.as_deref()), (Some("fs"), Some("read")));
    assert_eq!((filter.status, filter.intent_type), (Some(Status::Blocked), Some(OperationType::Write)));
    assert_eq!((filter.tier, filter.not_read), (Some(Tier::Unknown), true));
    assert!(!read("not_read=false").unwrap().not_read);
    assert_eq!((filter.owner.as_deref(), filter.key.unwrap().to_string().as_str()), (Some("bob b"), id));
    assert_eq!((filter.session_id.as_deref(), filter.request_id.as_deref()), (Some("s"), Some("r")));
    assert_eq!(filter.client_address, Some("192.0.2.1".parse().unwrap()));
    let by_name = read("key=ana%20ide").unwrap();
    assert_eq!((by_name.key, by_name.key_name.as_deref()), (None, Some("ana ide")));
    assert_eq!((filter.decision, filter.consent_id), (Some(Ruling::WouldAsk), id.parse().ok()));
    for bad in [
        "decision=maybe",
        "consent_id=1",
        "type=x",
        "source=x",
        "status=ok",
        "intent_type=unknown",
        "client_address=local",
        "start_time=x",
        "end_time=1",
        "tier=none",
        "not_read=1",
        "decided=x",
    ] {
        let name = bad.split('=').next().unwrap();
        assert_eq!(named(&read(bad).unwrap_err()), name);
    }
}
