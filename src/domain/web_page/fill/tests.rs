use proptest::prelude::*;

use super::super::charset::PageEncoding;
use super::super::dom::WebDom;
use super::super::form::WebForms;
use super::*;

type Values<'a> = &'a [(&'a str, &'a [&'a str])];

fn form(page: &str) -> WebForm {
    let url = url::Url::parse("https://shop.example/a/page?x=1#top").unwrap();
    WebForms::read(&WebDom::parse(page).unwrap(), &url).forms.remove(0)
}

fn owned(values: Values<'_>) -> Vec<(String, Vec<String>)> {
    values
        .iter()
        .map(|(name, values)| ((*name).to_owned(), values.iter().map(|own| (*own).to_owned()).collect()))
        .collect()
}

fn fill(form: &WebForm, values: Values<'_>, button: Option<&str>) -> Result<FilledForm, Vec<FieldProblem>> {
    let submitter = button.map(|name| form.named(name).next().expect("a button"));
    FillRequest { form, values: &owned(values), submitter, encoding: PageEncoding::UTF_8 }.fill()
}

/// Codes of the problems, as `field:code`.
fn problems(page: &str, values: Values<'_>) -> Vec<String> {
    match fill(&form(page), values, None) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(|own| format!("{}:{}", own.field, own.code.as_str())).collect(),
    }
}

/// The query of a form of GET.
fn query(page: &str, values: Values<'_>) -> String {
    let filled = fill(&form(page), values, None).unwrap_or_else(|problems| panic!("{page}: {problems:?}"));
    filled.request.url.query().unwrap_or_default().to_owned()
}

#[test]
fn values_become_the_entries_of_browsers() {
    for (page, values, sent) in [
        ("<form><input name=a value=1><input name=b>", &[("b", &["x y&é"][..])][..], "a=1&b=x+y%26%C3%A9"),
        // the pair of Rails: the hidden one goes first
        (
            "<form><input type=hidden name=a value=0><input type=checkbox name=a value=1>",
            &[("a", &["1"])],
            "a=0&a=1",
        ),
        (
            "<form><input type=hidden name=a value=0><input type=checkbox name=a value=1 checked>",
            &[("a", &[])],
            "a=0",
        ),
        ("<form><input type=checkbox name=a>", &[("a", &["true"])], "a=on"),
        ("<form><input type=checkbox name=a checked>", &[("a", &["false"])], ""),
        (
            "<form><input type=checkbox name=a[] value=1>\
             <input type=checkbox name=a[] value=2 checked><input type=checkbox name=a[] value=3>",
            &[("a[]", &["3", "1"])],
            "a%5B%5D=1&a%5B%5D=3",
        ),
        (
            "<form><input type=radio name=a value=1 checked><input type=radio name=a value=2>",
            &[("a", &["2"])],
            "a=2",
        ),
        ("<form><input type=radio name=a value=1 checked><input type=radio name=a value=2>", &[], "a=1"),
        ("<form><select name=a><option>1<option value=b>2</select>", &[("a", &["b"])], "a=b"),
        (
            "<form><select name=a multiple><option selected>1<option>2<option>3</select>",
            &[("a", &["3", "2"])],
            "a=2&a=3",
        ),
        ("<form><select name=a multiple><option selected>1</select>", &[("a", &[])], ""),
        ("<form><input name=a><input name=a value=d>", &[("a", &["x"])], "a=x&a=d"),
        ("<form><textarea name=a>\n\nx</textarea>", &[], "a=%0D%0Ax"),
        (
            "<form><textarea name=a></textarea><input name=b>",
            &[("a", &["1\r2\n3\r\n4"]), ("b", &["1\n2"])],
            "a=1%0D%0A2%0D%0A3%0D%0A4&b=12",
        ),
        (
            "<form><input name=a><input type=submit name=s><input type=submit name=t value=2>",
            &[("a", &["1"])],
            "a=1&s=Submit",
        ),
        ("<form><input type=image name=i><input name=a>", &[], "i.x=0&i.y=0&a="),
        ("<form><input type=file name=f><input type=button name=b value=1><input name=''><input>", &[], "f="),
        ("<form><input type=hidden name=_charset_ value=x>", &[], "_charset_=UTF-8"),
        (
            "<form dir=rtl><input name=a dirname=a.dir><textarea name=b dirname=d dir=auto></textarea>",
            &[("b", &["שלום"])],
            "a=&a.dir=rtl&b=%D7%A9%D7%9C%D7%95%D7%9D&d=rtl",
        ),
        (
            "<form><input type=number name=a value=x><input type=range name=b>\
             <input type=range name=c min=1 max=2 step=.3 value=9><input type=color name=d value=x>\
              <input type=date name=e value=2023-02-29>",
            &[],
            "a=&b=50&c=1.9&d=%23000000&e=",
        ),
        ("<form><input type=email multiple name=a>", &[("a", &[" a@b.c , d@e.f "])], "a=a%40b.c%2Cd%40e.f"),
        ("<form accept-charset='x latin1'><input name=a>", &[("a", &["é→"])], "a=%E9%26%238594%3B"),
    ] {
        assert_eq!(query(page, values), sent, "{page}");
    }
}

#[test]
fn constraints_are_those_of_browsers() {
    let none: &[&str] = &[];
    for (control, value, found) in [
        ("required", "", &["a:value_missing"][..]),
        ("required value=x readonly", "", &["a:not_editable"]),
        ("minlength=3", "ab", &["a:too_short"]),
        ("minlength=3", "", none),
        ("maxlength=2", "é😀", &["a:too_long"]),
        ("maxlength=3", "é😀", none),
        ("pattern=[a-z]+", "A", &["a:pattern_mismatch"]),
        ("pattern='[\\w-]'", "!", none),
        ("type=email", "a@b", none),
        ("type=email", "a@b_c", &["a:type_mismatch"]),
        ("type=email", "a b@c", &["a:type_mismatch"]),
        ("type=url", "example.org", &["a:type_mismatch"]),
        ("type=url", "https://example.org", none),
        ("type=number", "1e2", none),
        ("type=number", "x", &["a:bad_input"]),
        ("type=number", "1.5", &["a:step_mismatch"]),
        ("type=number step=any", "1.5", none),
        ("type=number step=0.1", "0.7", none),
        ("type=number value=0.5", "2.5", none),
        ("type=number min=3 max=5", "2", &["a:range_underflow"]),
        ("type=number min=3 max=5", "6", &["a:range_overflow"]),
        ("type=date min=2026-01-01 step=7", "2026-01-09", &["a:step_mismatch"]),
        ("type=date max=2026-01-01", "2026-01-02", &["a:range_overflow"]),
        ("type=time", "10:00:30", &["a:step_mismatch"]),
        ("type=time min=22:00 max=06:00", "23:00", none),
        ("type=time min=22:00 max=06:00", "12:00", &["a:range_underflow", "a:range_overflow"]),
        ("type=week", "2026-W48", none),
        ("type=month min=2026-03", "2026-02", &["a:range_underflow"]),
        ("type=datetime-local", "2026-01-01T10:00", none),
        ("type=color", "red", &["a:bad_input"]),
        ("type=file", "x", &["a:not_editable"]),
        ("disabled", "x", &["a:not_editable"]),
        ("type=hidden", "x", &["a:not_editable"]),
    ] {
        assert_eq!(
            problems(&format!("<form><input name=a {control}>"), &[("a", &[value])]),
            found,
            "{control}: {value}"
        );
    }
    let cases: [(&str, Values<'_>, &[&str]); 17] = [
        ("<form><input name=a required>", &[], &["a:value_missing"]),
        ("<form novalidate><input name=a required>", &[], none),
        ("<form><input name=a required><button formnovalidate>", &[], none),
        ("<form><input type=checkbox name=a required>", &[], &["a:value_missing"]),
        (
            "<form><input type=radio name=a required><input type=radio name=a value=2>",
            &[],
            &["a:value_missing", "a:value_missing"],
        ),
        (
            "<form><select name=a required><option value=''>Choose<option>1</select>",
            &[],
            &["a:value_missing"],
        ),
        ("<form><select name=a required><option>0<option value=''>1</select>", &[("a", &[""])], none),
        ("<form><select name=a><option disabled>1<option>2</select>", &[("a", &["1"])], &["a:not_an_option"]),
        ("<form><input type=radio name=a value=1>", &[("a", &["2"])], &["a:not_an_option"]),
        ("<form><input name=a>", &[("a", &["1", "2"])], &["a:too_many_values"]),
        ("<form><input name=a>", &[("b", &["1"])], &["b:unknown_field"]),
        ("<form><input name=a minlength=3 maxlength=1 value=ab>", &[], none),
        ("<form><textarea name=a maxlength=3></textarea>", &[("a", &["a\r\nb"])], none),
        ("<form method=dialog>", &[], &[":no_target"]),
        ("<form><button disabled></button><input type=submit disabled>", &[], &[":no_button"]),
        ("<form action='javascript:x()'>", &[], &[":no_target"]),
        ("<form action='mailto:a@b.c'>", &[], &[":no_target"]),
    ];
    for (page, values, found) in cases {
        assert_eq!(problems(page, values), found, "{page}");
    }
    let unsupported = fill(&form("<form><input name=a pattern='(?=a).*'>"), &[("a", &["x"])], None).unwrap();
    assert_eq!(unsupported.unchecked, ["a"]);
}

#[test]
fn each_encoding_is_written_as_browsers_do() {
    let page =
        "<form method=post enctype=ENC><input name='a\"\n'><input type=file name=f><button name=b value=1>";
    let filled = |encoding: &str| {
        let form = form(&page.replace("ENC", encoding).replace("'a\"\n'", "'a&quot;&#10;'"));
        fill(&form, &[("a\"\n", &["é"])], None).unwrap().request
    };
    let plain = filled("text/plain");
    assert_eq!(String::from_utf8(plain.body).unwrap(), "a\"\r\n=é\r\nf=\r\nb=1\r\n");
    assert_eq!(plain.content_type.as_deref(), Some("text/plain"));
    let multipart = filled("multipart/form-data");
    let boundary = multipart.content_type.as_deref().unwrap().split_once("boundary=").unwrap().1.to_owned();
    let body = String::from_utf8(multipart.body).unwrap().replace(&boundary, "B");
    assert_eq!(
        body,
        "--B\r\nContent-Disposition: form-data; name=\"a%22%0D%0A\"\r\n\r\né\r\n\
         --B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n\r\n\
         --B\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n1\r\n--B--\r\n"
    );
    let post = filled("");
    assert_eq!(post.url.as_str(), "https://shop.example/a/page?x=1#top");
    assert_eq!(String::from_utf8(post.body).unwrap(), "a%22%0D%0A=%C3%A9&f=&b=1");
}

#[test]
fn steps_say_what_changes_and_how() {
    let form = form(
        "<form><input name=t value=old><input type=checkbox name=c value=1 checked><select name=s>\
         <option>1<option>2</select>\
         <button name=go></button><button name=other formaction=/other></button>",
    );
    let filled = fill(&form, &[("s", &["2"]), ("c", &[]), ("t", &["new"])], Some("other")).unwrap();
    let steps: Vec<_> = filled
        .steps
        .iter()
        .map(|own| format!("{} {} {:?} {:?}", own.layer.as_str(), own.field, own.before, own.after))
        .collect();
    assert_eq!(
        steps,
        [
            "data t [\"old\"] [\"new\"]",
            "interaction c [\"1\"] []",
            "interaction s [\"1\"] [\"2\"]",
            "invoke other [] []"
        ]
    );
    assert_eq!(filled.request.url.as_str(), "https://shop.example/other?t=new&s=2&other=");
}

#[test]
fn a_submission_has_a_bound() {
    let long = "x".repeat(BODY_BYTES_MAX);
    assert_eq!(problems("<form method=post><input name=a>", &[("a", &[&long])]), [":too_large"]);
    assert_eq!(problems("<form><input name=a>", &[("a", &[&long])]), [":too_large"]);
}

proptest! {
    /// Decodes as it was encoded, whatever is entered.
    #[test]
    fn entries_survive_the_way(value in ".{0,40}", name in "[a-z\\[\\] ]{1,8}") {
        let page = format!("<form><textarea name='{name}'></textarea>");
        let filled = fill(&form(&page), &[(&name, &[&value])], None).unwrap();
        let sent: Vec<_> = filled.request.url.query_pairs().into_owned().collect();
        let ends = value.replace("\r\n", "\n").replace('\r', "\n").replace('\n', "\r\n");
        prop_assert_eq!(sent, vec![(name, ends)]);
    }
}

#[test]
fn options_of_one_value_are_chosen_one_by_one_and_no_more_values_than_options() {
    let options = "<option value=a>".repeat(20_000);
    let page = form(&format!("<form><select multiple name=s>{options}</select>"));
    let values = |count: usize| vec![("s".to_owned(), vec!["a".to_owned(); count])];
    let fill = |count| {
        let values = values(count);
        FillRequest { form: &page, values: &values, submitter: None, encoding: PageEncoding::UTF_8 }.fill()
    };
    assert_eq!(
        fill(20_000).unwrap().request.url.query().map(|query| query.matches("s=a").count()),
        Some(20_000)
    );
    let problems: Vec<&str> = fill(20_001).unwrap_err().iter().map(|own| own.code.as_str()).collect();
    assert_eq!(problems, [ValidityCode::TooManyValues.as_str()]);
}
