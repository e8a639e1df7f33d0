use super::*;

fn read(page: &str) -> WebForms {
    let url = Url::parse("https://shop.example/a/page?x=1#top").unwrap();
    WebForms::read(&WebDom::parse(page).unwrap(), &url)
}

/// Names of the controls of each form.
fn names(forms: &WebForms) -> Vec<Vec<&str>> {
    forms.forms.iter().map(|form| form.controls.iter().map(|own| own.name.as_str()).collect()).collect()
}

#[test]
fn controls_belong_to_the_form_of_the_standard() {
    for (page, owned, orphans) in [
        ("<form><input name=a></form><input name=b>", vec![vec!["a"]], 1),
        // a form that the parser closes in a table, with controls in cells
        ("<table><form><tr><td><input name=a><tr><td><input name=b></form></table>", vec![vec!["a", "b"]], 0),
        // a stray end tag closes the element, not the association
        ("<div><form></div><input name=a><input name=b></form><input name=c>", vec![vec!["a", "b"]], 1),
        // the end tag of the form leaves the block open
        ("<form><div></form><input name=a>", vec![vec!["a"]], 0),
        (
            "<input name=a form=f><form id=f><input name=b><input name=c form=g></form>",
            vec![vec!["a", "b"]],
            1,
        ),
        (
            "<form id=f></form><form><input name=a form=f><input name=b form=''></form>",
            vec![vec!["a"], vec![]],
            1,
        ),
        ("<p id=f></p><form id=f></form><input name=a form=f>", vec![vec![]], 1),
        // the inner form is dropped, and its end tag closes the outer one
        ("<form><input name=a><form><input name=b></form><input name=c></form>", vec![vec!["a", "b"]], 1),
        ("<form><template><input name=a></template><input name=b></form>", vec![vec!["b"]], 0),
        ("<form><noscript><input name=a></noscript></form>", vec![vec!["a"]], 0),
        ("<template><form><input name=a></form></template>", vec![], 0),
    ] {
        let forms = read(page);
        assert_eq!((names(&forms), forms.orphans.len()), (owned, orphans), "{page}");
    }
}

#[test]
fn targets_are_resolved_as_browsers_do() {
    for (page, url) in [
        ("<form>", Some("https://shop.example/a/page?x=1#top")),
        ("<form action=''>", Some("https://shop.example/a/page?x=1#top")),
        ("<form action='b?y=2'>", Some("https://shop.example/a/b?y=2")),
        ("<form action='//other.example/'>", Some("https://other.example/")),
        ("<base href='https://other.example/p/'><form action='../q'>", Some("https://other.example/q")),
        ("<base href='/z/'><form action='q'>", Some("https://shop.example/z/q")),
        ("<base><base href='/z/'><base href='/y/'><form action='q'>", Some("https://shop.example/z/q")),
        ("<base href='data:text/html,x'><form action='q'>", Some("https://shop.example/a/q")),
        ("<base href='https://other.example/'><form>", Some("https://shop.example/a/page?x=1#top")),
        ("<form action='javascript:x()'>", Some("javascript:x()")),
        ("<form action='https://:0'>", None),
    ] {
        let forms = read(page);
        assert_eq!(forms.forms[0].action.url.as_ref().map(Url::as_str), url, "{page}");
    }
    let forms = read(
        "<form method=POST enctype=Multipart/form-data accept-charset=latin1 novalidate>\
         <button formaction=/other formmethod=get formenctype=text/plain formnovalidate>",
    );
    let form = &forms.forms[0];
    assert_eq!((form.method, form.encoding), (FormMethod::Post, FormEncoding::Multipart));
    assert!(form.skips_validation && form.accept_charset.as_deref() == Some("latin1"));
    let overrides = &form.controls[0].overrides;
    assert_eq!(
        (overrides.method, overrides.encoding),
        (Some(FormMethod::Get), Some(FormEncoding::TextPlain))
    );
    assert_eq!(overrides.action.as_ref().map(|action| action.text.as_str()), Some("/other"));
    let forms = read("<form method=dialog></form><form method=put enctype=x id=a></form><form id=a></form>");
    let methods: Vec<_> = forms.forms.iter().map(|form| (form.method, form.encoding)).collect();
    assert_eq!(methods[0].0, FormMethod::Dialog);
    assert_eq!(methods[1], (FormMethod::Get, FormEncoding::UrlEncoded));
    let selectors: Vec<_> = forms.forms.iter().map(WebForm::selector).collect();
    assert_eq!(selectors, ["form[1]", "#a", "form[3]"]);
}

#[test]
fn labels_are_those_that_people_read() {
    let forms = read(
        "<form><label for=a>Your <b>name</b></label><input id=a>\
         <label>Colour <select><option>Red</select></label>\
         <span id=x>One</span><i id=y>two</i><input aria-labelledby='x y'><input aria-label=Aria>\
         <input title=Title><input placeholder=Hint><input><label for=a>second</label>\
         <fieldset><legend>Size</legend><label><input type=radio> Small<script>no</script></label></fieldset>\
         <button>Send <b>it</b></button><input type=submit value=Go><input type=image alt=Pay>\
          <label for=b></label><input id=b title=T></form>",
    );
    let labels: Vec<_> =
        forms.forms[0].controls.iter().map(|own| own.label.as_deref().unwrap_or_default()).collect();
    let wanted =
        ["Your name", "Colour", "One two", "Aria", "Title", "Hint", "", "Small", "Send it", "Go", "Pay", "T"];
    assert_eq!(labels, wanted);
    assert_eq!(forms.forms[0].controls[7].group_label.as_deref(), Some("Size"));
    let long = read(&format!("<form><label>{}<input></label>", "é ".repeat(3000)));
    let label = long.forms[0].controls[0].label.as_deref().unwrap();
    assert!(label.len() <= 1000, "{}", label.len());
}

#[test]
fn controls_are_as_nobody_has_changed_them() {
    let forms = read(
        "<form><input name=a value=1><input type=checkbox name=b checked>\
         <input type=radio name=c value=x checked>\
         <input type=radio name=c value=y checked><textarea name=d>\n\nx</textarea>\
         <select name=e><option disabled>1<option> 2  3 <option value=''>4</select>\
         <select name=f size=2><option>1</select><select name=g><option selected>1<option selected>2</select>\
         <select name=h multiple><option selected>1<option selected disabled>2\
         <optgroup disabled><option selected>3</select>\
         <input type=submit><input type=NUMBER name=i min=1 max=x step=any maxlength=' 12a' minlength=-1>\
         <input type=odd>\
         <fieldset disabled><legend><input name=j></legend><legend><input name=k></legend>\
         <input name=l></fieldset>\
         <div hidden><input name=m></div><input name=n style='Display : none'><input name=o disabled>\
         <datalist><input name=p></datalist><input name=q autocomplete='Shipping TEL'></form>",
    );
    let form = &forms.forms[0];
    let named = |name| form.named(name).next().unwrap_or_else(|| panic!("{name}"));
    assert_eq!((named("a").value.as_str(), named("b").value.as_str()), ("1", "on"));
    assert_eq!(form.named("c").map(|own| own.is_checked).collect::<Vec<_>>(), [false, true]);
    assert_eq!(named("d").value, "\nx");
    let selected = |name| {
        let chosen = named(name).options.iter().filter(|option| option.is_selected && !option.is_disabled);
        chosen.map(|option| option.value.as_str()).collect::<Vec<_>>()
    };
    assert_eq!((selected("e"), selected("f")), (vec!["2 3"], vec![]));
    assert_eq!((selected("g"), selected("h")), (vec!["2"], vec!["1"]));
    let submit = form.default_submitter().unwrap();
    assert_eq!((submit.kind, submit.value.as_str()), (ControlKind::Submit, "Submit"));
    let number = named("i");
    assert_eq!((number.kind, number.max_length, number.min_length), (ControlKind::Number, Some(12), None));
    assert_eq!(number.max.as_deref(), Some("x"));
    assert_eq!(["j", "k", "l", "o"].map(|name| named(name).is_disabled), [false, true, true, true]);
    assert_eq!(["m", "n", "a"].map(|name| named(name).is_hidden), [true, true, false]);
    assert_eq!(named("q").autocomplete, ["shipping", "tel"]);
    let sent: Vec<_> = form
        .controls
        .iter()
        .filter(|own| own.is_submitted_by_default())
        .map(|own| own.name.as_str())
        .collect();
    assert_eq!(sent, ["a", "b", "c", "d", "e", "g", "h", "i", "j", "m", "n", "q"]);
}

#[test]
fn every_text_at_a_control_is_found() {
    for (page, expected) in [
        (
            "<form><label for=a>Words</label><label for=a>Card number</label><input id=a name=a>",
            "Card number",
        ),
        ("<form><button name=a aria-label=Search>Buy <b>now</b></button>", "Buy now"),
        ("<form><button name=a aria-label=Search><img alt='Buy now'></button>", "Buy now"),
        ("<form><input type=image name=a aria-label=Search alt='Buy now'>", "Buy now"),
        ("<form><label>Words <input name=a title='Card number'></label>", "Card number"),
        (
            "<form><label>Words <input name=a aria-describedby='x y'></label></form><p id=y>Card number",
            "Card number",
        ),
        ("<form><table><tr><td>Card num\u{ad}ber<td><input name=a></table>", "Card number"),
        ("<form>Card\n number: <input name=a>", "Card number:"),
        ("<form><dl><dt>Card number<dd><span><input name=a></span></dl>", "Card number"),
        (&format!("<form><label>{}Card number<input name=a></label>", " ".repeat(5000)), "Card number"),
    ] {
        let forms = read(page);
        let texts = &forms.forms[0].controls[0].texts;
        assert!(texts.iter().any(|text| text.trim() == expected), "{page}: {texts:?}");
    }
    // what is the label of another control, or stands outside of the form, is none
    for page in [
        "<form><label for=b>Card number</label><input name=a><input id=b name=b>",
        "<form>Card number <input name=c><input name=a>",
        "<p>Card number</p><form><input name=a></form>",
    ] {
        let forms = read(page);
        assert!(forms.forms[0].named("a").all(|own| own.texts.is_empty()), "{page}");
    }
}

#[test]
fn texts_of_many_controls_cost_little() {
    let much = format!("<form><div id=x>{}</div>", "<p>word ".repeat(20_000));
    let controls = "<input aria-describedby='x x x x'>".repeat(1000);
    let began = std::time::Instant::now();
    let forms = read(&format!("{much}{controls}"));
    assert_eq!(forms.forms[0].controls.len(), 1000);
    assert!(began.elapsed() < std::time::Duration::from_secs(20));
}

#[test]
fn the_first_button_that_can_be_pressed_is_the_default() {
    let name = |page| {
        let forms = read(page);
        forms.forms[0].default_submitter().map(|own| own.name.clone())
    };
    assert_eq!(
        name("<form><input type=button name=a><button name=b></button><input type=submit name=c>").as_deref(),
        Some("b")
    );
    let disabled = "<form><button name=a type=submit disabled></button><button name=b></button>";
    assert_eq!(name(disabled).as_deref(), Some("b"));
    assert_eq!(name("<form><input name=a>"), None);
    assert_eq!(name("<form id=f></form><input type=image name=a form=f>").as_deref(), Some("a"));
}
