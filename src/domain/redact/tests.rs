use super::*;
use proptest::prelude::*;

/// Checks the redacted form of each text.
fn becomes(cases: &[(&str, &str)]) {
    for (text, wanted) in cases {
        assert_eq!(redact(text), *wanted, "{text}");
        assert_eq!(preview(text, text.len().max(wanted.len())).text, *wanted, "{text}");
        assert_eq!(redact(wanted), *wanted, "redacting twice: {text}");
    }
}

/// Checks that each text stays unchanged, and is not copied.
fn stay(texts: &[&str]) {
    for text in texts {
        assert!(matches!(redact(text), Cow::Borrowed(_)), "{text} became {}", redact(text));
    }
}

#[test]
fn members_fields_and_settings() {
    becomes(&[
        (r#"{"password":"hunter2","user":"bob"}"#, r#"{"password":"[redacted]","user":"bob"}"#),
        (r#"{"password": "a\"b\\","x":"y"}"#, r#"{"password": "[redacted]","x":"y"}"#),
        (
            r#"{"otp":"123456","pass":7,"token":12345,"n":5}"#,
            r#"{"otp":"[redacted]","pass":7,"token":[redacted],"n":5}"#,
        ),
        (r#"{"secrets":["a","b]"],"n":1}"#, r#"{"secrets":[redacted],"n":1}"#),
        (r#"{"credentials":{"a":{"b":"}"}},"n":1}"#, r#"{"credentials":[redacted],"n":1}"#),
        ("{\"api_key\":\n  \"abc\"}", "{\"api_key\":\n  \"[redacted]\"}"),
        (
            r#"{"body":"{\"token\": \"a\\\"b\",\"n\":1}"}"#,
            r#"{"body":"{\"token\": \"[redacted]\",\"n\":1}"}"#,
        ),
        (
            r#"{"a":"{\"b\":\"{\\\"pwd\\\":\\\"x y\\\"}\"}","c":1}"#,
            r#"{"a":"{\"b\":\"{\\\"pwd\\\":\\\"[redacted]\\\"}\"}","c":1}"#,
        ),
        (r#"{"a":"{\"secret\":[\"x\",\"y\"],\"n\":1}"}"#, r#"{"a":"{\"secret\":[redacted],\"n\":1}"}"#),
        ("user=bob&password=hunter2&x=1", "user=bob&password=[redacted]&x=1"),
        (r#"{"q":"a=1\u0026sig=abc%3D\u0026b=2"}"#, r#"{"q":"a=1\u0026sig=[redacted]\u0026b=2"}"#),
        ("user[password]=hunter2&x", "user[password]=[redacted]&x"),
        ("export DB_PASSWORD='a b' X=1", "export DB_PASSWORD='[redacted]' X=1"),
        ("os.environ[\"API_KEY\"] = \"abc\"", "os.environ[\"API_KEY\"] = \"[redacted]\""),
        ("password: hunter2\nname: x", "password: [redacted]\nname: x"),
        ("passphrase: correct horse battery\nname: x", "passphrase: [redacted]\nname: x"),
        (r#"{"env":"A=1\nDB_PASS=abc\nB=2"}"#, r#"{"env":"A=1\nDB_PASS=[redacted]\nB=2"}"#),
        ("{'token': b'abc', 'n': 1}", "{'token': b'[redacted]', 'n': 1}"),
        ("{'secrets': ['a]b', 'c'], 'n': 1}", "{'secrets': [redacted], 'n': 1}"),
        ("\"secret\" => \"abc\"", "\"secret\" => \"[redacted]\""),
        ("<password>abc</password>", "<password>[redacted]</password>"),
        ("login --user bob --password abc -v", "login --user bob --password [redacted] -v"),
        (r#"["--token","abc","-v"]"#, r#"["--token","[redacted]","-v"]"#),
        ("//registry.npmjs.org/:_authToken=abcdef", "//registry.npmjs.org/:_authToken=[redacted]"),
        (
            r#"{"name":"DB_PASSWORD","value":"x"},{"name":"USER","value":"y"}"#,
            r#"{"name":"DB_PASSWORD","value":"[redacted]"},{"name":"USER","value":"y"}"#,
        ),
        (
            "- name: API_TOKEN\n  value: abc\n- name: B\n  value: c",
            "- name: API_TOKEN\n  value: [redacted]\n- name: B\n  value: c",
        ),
    ]);
}

#[test]
fn headers() {
    becomes(&[
        ("Authorization: Bearer abc\r\nAccept: x", "Authorization: Bearer [redacted]\r\nAccept: x"),
        ("authorization: opaque stuff\nx", "authorization: [redacted]\nx"),
        ("Proxy-Authorization: Basic dXNlcjpw", "Proxy-Authorization: Basic [redacted]"),
        ("Cookie: a=\"b c\"; d=e\nHost: x", "Cookie: [redacted]\nHost: x"),
        ("X-API-Key: abc\nHost: x", "X-API-Key: [redacted]\nHost: x"),
        (r#"{"Authorization":"Bearer abc def","x":1}"#, r#"{"Authorization":"Bearer [redacted]","x":1}"#),
        (r#"{"Set-Cookie":["a=b; Path=/","c=d"],"x":1}"#, r#"{"Set-Cookie":[redacted],"x":1}"#),
        (
            r#"{"raw":"GET /\r\nCookie: a=b; c=d\r\nHost: x"}"#,
            r#"{"raw":"GET /\r\nCookie: [redacted]\r\nHost: x"}"#,
        ),
        (r#"{"raw":"Cookie: a=\"b\"; c=d","x":1}"#, r#"{"raw":"Cookie: [redacted]","x":1}"#),
        (r#"curl -H "Authorization: Bearer abc" -v"#, r#"curl -H "Authorization: Bearer [redacted]" -v"#),
        ("curl -H 'Cookie: a=b' -v", "curl -H 'Cookie: [redacted]' -v"),
        ("sent Bearer abcDEF123456 to it", "sent Bearer [redacted] to it"),
        (r#"[["authorization","Basic dXNlcjpwYXNz"]]"#, r#"[["authorization","Basic [redacted]"]]"#),
    ]);
}

#[test]
fn known_shapes() {
    let alnum = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
    let hex = "0123456789abcdef0123456789abcdef";
    for token in [
        format!("mcpk_{alnum}"),
        format!("ghp_{alnum}"),
        format!("gho_{alnum}"),
        format!("ghu_{alnum}"),
        format!("ghs_{alnum}"),
        format!("ghr_{alnum}"),
        format!("github_pat_{alnum}_{alnum}"),
        format!("glpat-{alnum}"),
        "xoxb-123456789012-abcdefABCDEF".to_owned(),
        "AKIAIOSFODNN7EXAMPLE".to_owned(),
        "ASIAIOSFODNN7EXAMPLE".to_owned(),
        "AIzaSyA-1234567890_abcdefghijklmnopqrst".to_owned(),
        format!("sk_live_{alnum}"),
        format!("rk_live_{alnum}"),
        format!("sk_test_{alnum}"),
        format!("sk-{alnum}"),
        format!("sk-ant-api03-{alnum}-_{alnum}"),
        format!("sk-proj-{alnum}"),
        format!("npm_{alnum}"),
        format!("pypi-AgEI{alnum}"),
        format!("hf_{alnum}"),
        format!("SG.{hex}.{alnum}"),
        format!("SK{hex}"),
        format!("dop_v1_{hex}{hex}"),
        format!("hvs.{alnum}"),
        format!("ya29.{alnum}"),
        format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{alnum}"),
        format!("eyJhbGciOiJkaXIifQ..{alnum}.{alnum}.{alnum}"),
    ] {
        becomes(&[
            (&token, MASK),
            (&format!("é{token} x"), "é[redacted] x"),
            (&format!("{{\"a\":\"x\\n{token}\\n\"}}"), "{\"a\":\"x\\n[redacted]\\n\"}"),
            (&format!("https://x.test/?q=%3D{token}&b"), "https://x.test/?q=%3D[redacted]&b"),
        ]);
    }
}

#[test]
fn key_blocks_and_urls() {
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQ";
    for (line_end, kind) in [
        ("\n", "RSA PRIVATE KEY"),
        ("\\n", "PRIVATE KEY"),
        ("\\\\n", "OPENSSH PRIVATE KEY"),
        ("\r\n", "PGP PRIVATE KEY BLOCK"),
    ] {
        let block = format!("-----BEGIN {kind}-----{line_end}{body}{line_end}-----END {kind}-----");
        becomes(&[(&format!("a {block} b"), "a [redacted] b")]);
        becomes(&[(&format!("a -----BEGIN {kind}-----{line_end}{body}{line_end}"), "a [redacted]")]);
    }
    // the value of the name ends before the secret in it
    becomes(&[(
        &format!("password=-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY----- b"),
        "password=[redacted] b",
    )]);
    stay(&[
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "starts with \"-----BEGIN PRIVATE KEY-----\".",
    ]);
    becomes(&[
        ("see https://bob:pw@example.com:8080/x", "see https://[redacted]@example.com:8080/x"),
        ("postgres://bob:p@ss/w@rd@db/x y@z", "postgres://[redacted]@db/x y@z"),
        ("postgres://bob:pa/ss@db/x", "postgres://[redacted]@db/x"),
        (r#"{"u":"https:\/\/bob:pw@h\/"}"#, r#"{"u":"https:\/\/[redacted]@h\/"}"#),
        ("https://ghtoken@github.com/x", "https://[redacted]@github.com/x"),
    ]);
    stay(&[
        "https://example.com:80/@scope/a@1 b",
        "http://[::1]:80/a@b",
        "git@github.com:a/b",
        "https://x.test/?a=b@c",
    ]);
}

#[test]
fn sessions_in_urls() {
    becomes(&[
        ("see https://a.test/?sid=84726153&q=1", "see https://a.test/?sid=[redacted]&q=1"),
        ("https://a.test/x;jsessionid=1234?q=1 y", "https://a.test/x;jsessionid=[redacted] y"),
        (r#"{"u":"/?a=1&PHPSESSID=77","n":1}"#, r#"{"u":"/?a=1&PHPSESSID=[redacted]","n":1}"#),
        (r#"{"u":"/?a=1\u0026connect.sid=7","n":1}"#, r#"{"u":"/?a=1\u0026connect.sid=[redacted]","n":1}"#),
        (r#"<a href="/?a=1&amp;session_id=7">x"#, r#"<a href="/?a=1&amp;session_id=[redacted]">x"#),
        ("/done#ASP.NET_SessionId=7", "/done#ASP.NET_SessionId=[redacted]"),
    ]);
    stay(&[
        r#"{"session_id":"s-1","sid":7,"sessionId":"x"}"#,
        "sid=1 session=2 PHPSESSID: 5",
        r"\usid=1 \nsid=2",
        "https://a.test/?address_id=5&business_id=6&sessions=3&side=4",
    ]);
}

#[test]
fn cards() {
    for number in [
        "4111111111111111",
        "4111 1111 1111 1111",
        "5500-0000-0000-0004",
        "378282246310005",
        "3782 822463 10005",
        "6011111111111117",
        "4222222222222",
        "2223003122003222",
        "6304000000000000000",
    ] {
        becomes(&[
            (number, MASK),
            (&format!("{{\"n\":{number}}}"), "{\"n\":[redacted]}"),
            (&format!("id 12 {number}, 07"), "id 12 [redacted], 07"),
            (&format!("\\n{number}."), "\\n[redacted]."),
        ]);
    }
    stay(&[
        "4111111111111112",
        "4111111111111116",
        "41111111111111110000",
        "14111111111111111",
        "4111 1111 1111 1112",
        "0.4111111111111111",
        "4111111111111111.5",
        "1700000000000",
        "2026-11-21 2026-11-22 10-20-30",
        "4111, 1111, 1111, 1111",
        // identifiers in hexadecimal: the second as Python's uuid4().hex makes them
        "ab4111111111111111abcdef",
        "311881200528435db14423a94b030289",
        "{\"id\":\"8735265377534ceeb7391bf4b2b1b584\"}",
        "abcdef12-4111-1111-1111-1111deadbeef",
    ]);
    // too short for an identifier, or not hexadecimal
    becomes(&[
        ("face4111111111111111", "face[redacted]"),
        ("order4111111111111111order4111111111111111", "order[redacted]order[redacted]"),
        // identifiers do not have such groups
        ("4111 1111 1111 1111decade", "[redacted]decade"),
        ("facade4111 1111 1111 1111", "facade[redacted]"),
        ("4111-1111-1111-1111faded", "[redacted]faded"),
        ("cdef12-4111-1111-1111-1111deadbeef", "cdef12-[redacted]deadbeef"),
    ]);
}

#[test]
fn ordinary_text_stays() {
    stay(&[
        "",
        r#"{"max_tokens":100,"token_count":5,"next_page_token":"abc","progressToken":7,"total_tokens":12}"#,
        r#"{"password_policy":"strong","has_password":true,"secret":null,"is_secret":false}"#,
        r#"{"name":"password_reset","description":"x"} {"name":"x","value":"y"}"#,
        "--- PASS: TestLogin (0.00s)",
        "basic understanding of bearer tokens; a bearer of news; Basic authentication is required",
        "task-management-system-for-everyone risk-averse disk_test_x",
        "eyJ.length eyJhbGci no dots",
        "the secretary: Bob; compass=5; monkey: x",
        "password=",
        "a: b = c > d < e",
        "日本語: テキスト = 値",
    ]);
}

#[test]
fn nul_becomes_a_character_that_can_be_stored() {
    becomes(&[("a\0b\\u0000", "a\u{fffd}b\\u0000")]);
    assert_eq!(preview("a\0b", 4), Preview { text: "a\u{fffd}".into(), truncated: true, masked: 0 });
}

#[test]
fn previews_are_cut_between_characters() {
    assert_eq!(preview("añb", 2), Preview { text: "a".into(), truncated: true, masked: 0 });
    assert_eq!(preview("añb", 3), Preview { text: "añ".into(), truncated: true, masked: 0 });
    assert_eq!(preview("añb", 4), Preview { text: "añb".into(), truncated: false, masked: 0 });
    assert_eq!(preview("x", 0), Preview { text: String::new(), truncated: true, masked: 0 });
    assert_eq!(preview("", 0), Preview { text: String::new(), truncated: false, masked: 0 });
    assert_eq!(preview("x", usize::MAX).text, "x");
    // a mask longer than its secret is cut to the bound
    assert_eq!(
        preview("pwd=a&pwd=b", 11),
        Preview { text: "pwd=[redact".into(), truncated: true, masked: 2 }
    );
}

#[test]
fn previews_of_raw_bytes_are_those_of_their_text() {
    let text = format!("añ password=hunter2 {}", "ñ日".repeat(1000));
    for max in (0..40).chain(990..1010).chain([text.len() - 1, text.len(), usize::MAX]) {
        assert_eq!(preview_raw(text.as_bytes(), max), preview(&text, max), "{max}");
    }
    assert_eq!(preview_raw(b"a\xff", 9).text, "a");
}

#[test]
fn secrets_without_an_end_in_sight_are_masked_to_the_end() {
    for start in [
        "{\"password\":\"",
        "-----BEGIN PRIVATE KEY-----\n",
        "eyJ",
        "{\"credentials\":[\"",
        "https://u:",
        "Cookie: ",
        "mcpk_",
        "{\\\"token\\\":\\\"",
    ] {
        let text = format!("see {start}{} end", "A".repeat(5000));
        let shown = preview(&text, 200);
        assert!(!shown.text.contains("AA"), "{}", shown.text);
        assert!(shown.truncated);
    }
}

#[test]
fn hostile_repetition_costs_little() {
    // each text would take minutes if it were read to the end from every start
    for part in [
        "\"pwd\":[",
        "pwd=",
        "pwd='",
        "eyJ",
        "eyJ.",
        "cookie:",
        "cookie='",
        "\"pwd\":\"",
        "sk-",
        "ghp_",
        "xoxb-",
        "-",
        "--a",
        "bearer",
        "Bearer+",
        "a://b:c/",
        "4111 ",
        "4111",
        "name:password,",
        "\\",
        "pwd=\\",
        "\":",
        ": ",
        "=",
        "-----BEGIN PRIVATE KEY-----\n",
        "[pwd]=",
        "&sid=",
        "?sid=[",
        "name: ",
        "ghp_gho_",
        "xoxb-sk-",
        "ghs_eyJ.",
        "Bearer+eyJ",
    ] {
        let repeated = part.repeat(300_000 / part.len());
        for text in [format!("{repeated}-----END \"]\n x"), repeated] {
            assert!(redact(&text).len() <= text.len() * MASK.len(), "{part}");
        }
    }
}

/// Returns a text with a secret, and its parts that must not show.
fn secret() -> impl Strategy<Value = (String, Vec<String>)> {
    let in_template = |template: &'static str, core: &'static str| {
        core.prop_map(move |core| (template.replace("{}", &core), vec![core])).boxed()
    };
    const OPAQUE: &str = "[A-Za-z0-9_-]{20,60}";
    const ALNUM: &str = "[A-Za-z0-9]{36,60}";
    const TEXT: &str = "[A-Za-z0-9!$%()*+,./:;=?@^_|~ é-]{0,20}[A-Za-z0-9]{10,90}";
    let mut kinds = vec![
        in_template("Authorization: Bearer {}\n", OPAQUE),
        in_template("authorization: {}\r\n", OPAQUE),
        in_template("Cookie: a=b; sid={}\n", OPAQUE),
        in_template("X-Api-Key: {}\n", OPAQUE),
        in_template("{\"password\": \"{}\"}", TEXT),
        in_template("{\"nested\":{\"client_secret\":[\"{}\"]}}", TEXT),
        in_template("{\"headers\":{\"Authorization\":\"Bearer {}\"}}", OPAQUE),
        in_template("{\"name\":\"DB_PASSWORD\",\"value\":\"{}\"}", TEXT),
        in_template(" password={}&x=1", OPAQUE),
        in_template(" API_TOKEN={}\n", OPAQUE),
        in_template(" apiKey: '{}'", TEXT),
        in_template("aws_secret_access_key = {}\n", "[A-Za-z0-9/+]{40}"),
        in_template("postgres://app:{}@db.test/x", "[A-Za-z0-9!$%*+,;=_~-]{9,60}"),
        in_template(" eyJ{}.c2lnbmF0dXJl", "[A-Za-z0-9_-]{20,90}\\.eyJ[A-Za-z0-9_-]{20,900}"),
        in_template(" SG.{}", "[A-Za-z0-9_-]{22}\\.[A-Za-z0-9_-]{43}"),
        in_template(" AKIA{}", "[A-Z0-9]{16}"),
        in_template(" SK{}", "[0-9a-f]{32}"),
        in_template(" xoxb-{}", "[0-9]{12}-[A-Za-z0-9]{24}"),
        in_template(" AIza{}", "[A-Za-z0-9_-]{35}"),
        in_template(" sk-ant-api03-{}", "[A-Za-z0-9_-]{19,90}A"),
    ];
    for template in [
        "mcpk_{}",
        "ghp_{}",
        "ghs_{}",
        "github_pat_{}",
        "glpat-{}",
        "sk_live_{}",
        "npm_{}",
        "pypi-{}",
        "hf_{}",
        "dop_v1_{}",
    ] {
        kinds.push(in_template(template, ALNUM));
    }
    let pem = prop::collection::vec("[A-Za-z0-9+/]{64}", 1..40).prop_map(|lines| {
        (format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n")), lines)
    });
    let quoted = (OPAQUE, OPAQUE).prop_map(|(a, b)| {
        let value = serde_json::Value::from(format!("{a}\"\\\"\n{b}"));
        (format!("{{\"x\":1,\"refresh_token\":{value}}}"), vec![a, b])
    });
    let card =
        ("[2-6][0-9]{14}", prop::sample::select(vec!["", " ", "-"])).prop_map(|(digits, separator)| {
            let number = (0..10).map(|last| format!("{digits}{last}")).find(|n| is_luhn(n)).unwrap();
            let groups: Vec<&str> =
                number.as_bytes().chunks(4).map(|c| std::str::from_utf8(c).unwrap()).collect();
            let number = groups.join(separator);
            (format!(" {number} "), vec![number])
        });
    kinds.extend([pem.boxed(), quoted.boxed(), card.boxed()]);
    prop::strategy::Union::new(kinds)
}

/// Checks a number with the Luhn rule, in a different way than the tested code.
fn is_luhn(number: &str) -> bool {
    let digits: Vec<u32> = number.chars().filter_map(|c| c.to_digit(10)).collect();
    let parity = digits.len() % 2;
    let sum: u32 = digits
        .iter()
        .enumerate()
        .map(|(i, d)| if i % 2 == parity { d * 2 / 10 + d * 2 % 10 } else { *d })
        .sum();
    sum.is_multiple_of(10)
}

/// Returns text around a secret. Its end separates the secret from any run of digits.
fn surrounding() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z0-9 .,;:{}\\[\\]\"'\\\\=&<>/@_\n\té日\u{0}-]{0,40}",
        prop::sample::select(vec![
            "\"a\":1,",
            "{\"text\":\"",
            "x=1&",
            "token",
            "https://x.test/",
            "\n",
            "password: x\n"
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn no_part_is_visible(output: &str, parts: &[String]) -> Result<(), TestCaseError> {
    const VISIBLE_MAX: usize = 8;
    for part in parts {
        let chars: Vec<char> = part.chars().collect();
        for window in chars.windows(VISIBLE_MAX + 1) {
            let window: String = window.iter().collect();
            prop_assert!(!output.contains(&window), "{window:?} of {part:?} is in {output:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn planted_secrets_never_show(
        (secret, parts) in secret(),
        before in surrounding(),
        after in surrounding(),
        levels in 0..3_usize,
        cut in any::<prop::sample::Index>(),
    ) {
        let mut text = format!("{before} {secret} {after}");
        for _ in 0..levels {
            text = serde_json::json!({ "text": text, "n": 1 }).to_string();
        }
        no_part_is_visible(&redact(&text), &parts)?;
        let max_bytes = cut.index(text.len() + 20);
        let shown = preview(&text, max_bytes);
        prop_assert!(shown.text.len() <= max_bytes);
        prop_assert!(!shown.text.contains('\0'));
        prop_assert!(shown.truncated || max_bytes >= text.len());
        no_part_is_visible(&shown.text, &parts)?;
    }

    #[test]
    fn cuts_through_a_secret_never_show_it((secret, parts) in secret(), levels in 0..3_usize) {
        let mut text = format!("see {secret} end");
        for _ in 0..levels {
            text = serde_json::Value::from(text).to_string();
        }
        for max_bytes in 0..=text.len().min(300) {
            no_part_is_visible(&preview(&text, max_bytes).text, &parts)?;
        }
    }

    #[test]
    fn any_text_is_survived(text in "\\PC{0,60}|[\u{0}-\u{ff}]{0,60}", max_bytes in 0..80_usize) {
        prop_assert!(preview(&text, max_bytes).text.len() <= max_bytes);
        drop(redact(&text));
    }
}

#[test]
fn characters_that_nobody_sees_are_marks_outside_of_secrets() {
    let marked = |text: &str, max| preview_marked(text, |c| c == '\u{200b}', max).text;
    assert_eq!(marked("\u{200b}a\u{200b}\u{200b}b\u{200b}", 99), "<U+200B>a<U+200B><U+200B>b<U+200B>");
    let secret = "a\u{200b}ghp_012345\u{200b}6789abcdefghijABCDEFGHIJ012345\u{200b} b";
    assert_eq!(marked(secret, 99), "a<U+200B>[redacted]<U+200B> b");
    let full = format!("{{\"password\":\"a{}\",\"b\":\"\u{200b}\"}}", "\u{200b}".repeat(100));
    assert!(preview_marked(&full, |c| c == '\u{200b}', 90).truncated);
}
