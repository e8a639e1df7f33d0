use super::*;
use proptest::prelude::*;
use serde::de::IgnoredAny;

fn duplicate(name: &str) -> Result<(), JsonFault> {
    Err(JsonFault::DuplicateMember { name: name.into() })
}

#[test]
fn accepts_json() {
    for text in [
        "{}",
        " [ ] ",
        "null",
        "-0.0e-99999",
        "1e400",
        "99999999999999999999999999999999",
        r#""\ud800""#,
        r#"{"a":[{"a":1},{"a":2}],"b":{"a":{"a":3}}}"#,
        r#"{"\\u0061":1,"a":2,"A":3}"#,
        "\"\u{7f}é😀\\\"\\\\\\/\"",
    ] {
        assert_eq!(check(text), Ok(()), "{text}");
    }
}

#[test]
fn refuses_what_is_not_json() {
    for (text, offset) in [
        ("", 0),
        ("  ", 2),
        ("{} x", 3),
        ("[1,]", 3),
        ("{\"a\":1,}", 7),
        ("{a:1}", 1),
        ("01", 1),
        ("1.", 2),
        ("-", 1),
        ("+1", 0),
        ("1e", 2),
        ("nul", 0),
        ("\"a\nb\"", 2),
        ("\"\\x\"", 2),
        ("\"\\u12g4\"", 2),
        ("\"\\u12", 2),
        ("\"abcdefghijk", 12),
        ("\u{feff}{}", 0),
        ("[1 2]", 3),
    ] {
        assert_eq!(check(text), Err(JsonFault::Syntax { offset }), "{text:?}");
    }
}

#[test]
fn refuses_duplicates_anywhere_and_however_spelled() {
    assert_eq!(check(r#"{"a":1,"a":1}"#), duplicate("a"));
    assert_eq!(check(r#"[{"x":{"a":1,"b":2,"\u0061":1}}]"#), duplicate("a"));
    assert_eq!(check(r#"{"\ud83d\ude00":1,"😀":2}"#), duplicate("😀"));
    assert_eq!(check(r#"{"\ud800":1,"\udfff":2}"#), duplicate("\u{fffd}"));
    assert_eq!(check(r#"{"":1,"":2}"#), duplicate(""));
    for count in [2, LINEAR_MEMBERS_MAX, LINEAR_MEMBERS_MAX + 1, LINEAR_MEMBERS_MAX + 2, 10_000] {
        let names: Vec<String> = (0..count).map(|n| format!("\"n{n}\":{{\"n0\":{n}}}")).collect();
        assert_eq!(check(&format!("{{{}}}", names.join(","))), Ok(()));
        let again = format!("{{{},\"n{}\":0}}", names.join(","), count / 2);
        assert_eq!(check(&again), duplicate(&format!("n{}", count / 2)), "{count}");
    }
}

#[test]
fn what_callers_send_must_be_text() {
    for text in [r#"{"a":"\ud800"}"#, r#"{"\udc00":1}"#, r#"{"a":["x",{"b":"\udc00\ud800"}]}"#] {
        assert!(members(text).is_ok(), "{text}");
        assert!(matches!(members_of_text(text), Err(JsonFault::LoneSurrogate { .. })), "{text}");
    }
    let offset = 5;
    assert_eq!(members_of_text(r#"{"a":"\ud800"}"#), Err(JsonFault::LoneSurrogate { offset }));
    for text in [r#"{"\ud83d\ude00":"\\ud800 \u0000"}"#, "{}"] {
        assert_eq!(members_of_text(text), members(text), "{text}");
    }
}

#[test]
fn bounds_the_depth() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nest = |n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
        assert_eq!(check(&nest(DEPTH_MAX)), Ok(()));
        assert_eq!(check(&nest(DEPTH_MAX + 1)), Err(JsonFault::TooDeep));
        assert_eq!(check(&open.repeat(1_000_000)), Err(JsonFault::TooDeep));
    }
}

#[test]
fn fault_texts_are_short_and_one_line() {
    assert_eq!(check(r#"{"x":1,"x":1}"#).unwrap_err().to_string(), "duplicate member name 'x'");
    assert_eq!(JsonFault::duplicate("a\nb").to_string(), r"duplicate member name 'a\nb'");
    assert!(JsonFault::duplicate(&"é".repeat(100_000)).to_string().len() < 200);
    assert_eq!(check("[").unwrap_err().to_string(), "invalid JSON at byte 1");
}

#[test]
fn lists_members() {
    let text = " { \"a\" : [1, 2] ,\"\\u0062\":{} } ";
    let found = members(text).unwrap();
    let seen: Vec<_> =
        found.iter().map(|m| (m.name.as_ref(), m.value, text.get(m.span.clone()).unwrap())).collect();
    assert_eq!(seen, [("a", "[1, 2]", "\"a\" : [1, 2]"), ("b", "{}", "\"\\u0062\":{}")]);
    assert_eq!(members("{}"), Ok(vec![]));
    assert_eq!(members("[1]"), Err(JsonFault::NotAnObject));
    assert_eq!(members("[1"), Err(JsonFault::Syntax { offset: 2 }));
    assert_eq!(members("{} {}"), Err(JsonFault::Syntax { offset: 3 }));
    assert!(members(r#"{"a":[{"b":1,"b":2}]}"#).is_err());
}

#[test]
fn finds_members_without_looking_into_the_others() {
    let text =
        r#"{ "content":[{"text":"}\\\"]\\"},{"x":1,"x":2}], "isError" : true ,"_meta":{"isError":1} }"#;
    assert_eq!(
        find_members(text, ["isError", "resultType", "content"]),
        Ok([Some("true"), None, Some(r#"[{"text":"}\\\"]\\"},{"x":1,"x":2}]"#)])
    );
    assert_eq!(
        find_members(r#"{"isError":1,"is\u0045rror":2}"#, ["isError"]).unwrap_err().to_string(),
        "duplicate member name 'isError'"
    );
    assert_eq!(find_members("[]", ["a"]), Err(JsonFault::NotAnObject));
    for broken in
        ["{", "{\"a\"", "{\"a\":", "{\"a\":[", "{\"a\":\"", "{\"a\":\"\\", "{\"a\":1", "{\"a\":1}x", "{,}"]
    {
        assert!(matches!(find_members(broken, ["a"]), Err(JsonFault::Syntax { .. })), "{broken}");
    }
}

#[test]
fn removes_members_and_nothing_else() {
    for (text, wanted) in [
        (r#"{"x":1}"#, "{}"),
        (r#"{ "x" : 1 }"#, "{  }"),
        (r#"{ "a":1 , "x":2 , "b":3 }"#, r#"{ "a":1 , "b":3 }"#),
        (r#"{"x":{"x":1},"y":2, "a" : 1}"#, r#"{"a" : 1}"#),
        (r#"{"a":{"x":1},"\u0078":"}"}"#, r#"{"a":{"x":1}}"#),
        (r#"{"x":1,"y":2}"#, "{}"),
        (r#" {"a":1} "#, r#" {"a":1} "#),
        ("[1]", "[1]"),
        ("{", "{"),
    ] {
        assert_eq!(without_members(text, &["x", "y"]), wanted, "{text}");
    }
    assert!(matches!(without_members("{\"a\":1}", &["x"]), Cow::Borrowed(_)));
}

#[test]
fn opens_an_object_in_few_parts() {
    for (text, names, start, rest, is_empty) in [
        (r#" { "a":1}"#, &[][..], " {", &[r#" "a":1}"#][..], false),
        ("{}", &[], "{", &["}"], true),
        (r#"{"x":1}"#, &["x"], "{", &["", "}"], true),
        (r#"{"a":1,"b":2,"x":3,"c":4,"d":5}"#, &["x"], "{", &[r#""a":1,"b":2"#, r#","c":4,"d":5}"#], false),
        (r#"{"x":1, "a":2}"#, &["x"], "{", &["", r#""a":2}"#], false),
    ] {
        assert_eq!(
            opened(text, names),
            Some(OpenedObject { start, rest: rest.to_vec(), is_empty }),
            "{text}"
        );
    }
    assert_eq!(opened("[1]", &["x"]), None);
}

#[test]
fn inserts_a_first_member() {
    for (text, wanted) in [
        ("{}", r#"{"n\"":[1]}"#),
        ("{ }", r#"{"n\"":[1] }"#),
        (" {\n \"a\":1}", " {\"n\\\"\":[1],\n \"a\":1}"),
        ("[]", "[]"),
    ] {
        assert_eq!(with_member_first(text, "n\"", "[1]"), wanted);
    }
}

#[test]
fn escapes_into_both_kinds_of_buffer() {
    let mut text = String::from("x");
    let mut bytes = Vec::new();
    escape_into(&mut text, "a\"\\\u{1}\n\u{7f}é");
    escape_into(&mut bytes, "");
    assert_eq!(text, "x\"a\\\"\\\\\\u0001\\n\u{7f}é\"");
    assert_eq!(bytes, b"\"\"");
}

/// Returns texts that are nearly JSON: tokens in any order, and real values with one character changed.
fn nearly_json() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\\u00",
        "41",
        "0",
        "-",
        ".",
        "1e",
        "+",
        "true",
        "null",
        " ",
        "\n",
        "\"a\"",
        "\"b\":",
        "é",
        "\u{1}",
        "\"\\u0061\":1",
        "false",
    ]);
    let soup = prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat());
    let damaged = (real_json(), any::<prop::sample::Index>(), "[\\[\\]{},:\"\\\\0-9a.eE+ \u{0}-\u{1f}-]?")
        .prop_map(|(mut text, index, with)| {
            let at = text.floor_char_boundary(index.index(text.len()));
            text.remove(at);
            text.insert_str(at, &with);
            text
        });
    prop_oneof![soup, damaged, real_json()]
}

fn real_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,9})?([eE][+-]?[0-9]{1,5})?",
        "\\PC{0,20}|[\u{0}-\u{ff}]{0,20}".prop_map(|s| serde_json::Value::from(s).to_string()),
        "\"(\\\\u[0-9a-fA-F]{4}|\\\\[\"\\\\/bfnrt]|[a-z]){0,9}\"",
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|items| format!("[{}]", items.join(" ,"))),
            prop::collection::btree_map("[a-d]{1,2}", inner, 0..5).prop_map(|map| {
                let members: Vec<_> =
                    map.iter().map(|(name, value)| format!("\"{name}\" : {value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn agrees_with_serde_json_on_what_is_json(text in nearly_json()) {
        let known = serde_json::from_str::<IgnoredAny>(&text).is_ok();
        match check(&text) {
            Ok(()) => prop_assert!(known),
            Err(JsonFault::Syntax { .. }) => prop_assert!(!known),
            Err(_) => {}
        }
    }

    #[test]
    fn real_json_passes_and_is_cut_right(text in real_json(), other in real_json()) {
        prop_assert_eq!(check(&text), Ok(()));
        let object = format!("{{ \"one\" :{text} , \"two\": {other}}}");
        let found = members(&object).unwrap();
        prop_assert_eq!(found[0].value, &text);
        prop_assert_eq!(found[1].value, &other);
        prop_assert_eq!(find_members(&object, ["two", "one"]), Ok([Some(&*other), Some(&*text)]));
        let only = without_members(&object, &["one"]);
        prop_assert_eq!(only, format!("{{ \"two\": {other}}}"));
        let more = with_member_first(&object, "zero", &other);
        let more = members(&more).unwrap();
        prop_assert_eq!((&*more[0].name, more[0].value, more.len()), ("zero", &*other, 3));
    }

    #[test]
    fn unescaping_and_escaping_agree_with_serde_json(text in "\\PC{0,30}|[\u{0}-\u{ff}]{0,30}") {
        let mut literal = String::new();
        escape_into(&mut literal, &text);
        prop_assert_eq!(&serde_json::from_str::<String>(&literal).unwrap(), &text);
        let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        for spelled in [literal, serde_json::Value::from(&*text).to_string(), format!("\"{units}\"")] {
            let object = format!("{{{spelled}:1}}");
            prop_assert_eq!(&*members(&object).unwrap()[0].name, &*text);
        }
    }

    #[test]
    fn the_cheap_walk_never_panics(text in nearly_json()) {
        drop(find_members(&text, ["a"]));
        drop(without_members(&text, &["a"]));
        drop(opened(&text, &["a"]));
        drop(with_member_first(&text, "a", "1"));
    }
}
