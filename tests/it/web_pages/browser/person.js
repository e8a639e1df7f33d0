// What a person does at a form: enters values, types some of them, and presses a button. Evaluates to an object with the
// steps, for the form of this number among those of the page and the button of this number among those of the form that
// are not disabled (null for the first). The page's own scripts are off.
window.person = ((number, pressed) => {
  const form = document.forms[number];
  // images are no elements of a form in `form.elements`
  const controls = [...document.querySelectorAll('input, select, textarea, button')].filter((one) => one.form === form);
  const isTicked = (one) => one.type === 'checkbox' || one.type === 'radio';
  const isChosen = (one) => isTicked(one) || one.tagName === 'SELECT';
  const isButton = (one) => ['submit', 'image', 'button', 'reset'].includes(one.type);
  const isOpen = (one) => !isButton(one) && !['hidden', 'file'].includes(one.type) && !one.matches(':disabled')
    && !(one.readOnly && !isChosen(one)) && !one.closest('datalist');

  const choose = (one, value) => {
    const free = (option) => !option.disabled && !option.parentElement.closest('optgroup')?.disabled;
    const option = [...one.options].find((each) => each.value === value && free(each) && !each.matches('.taken'));
    if (!option) return false;
    option.classList.add('taken');
    option.selected = true;
    return true;
  };

  // lengths are validated of what was typed alone: what a script sets is not
  const isTyped = (one) => one.hasAttribute('minlength') || one.hasAttribute('maxlength');
  const typed = [];

  const took = (one, value) => {
    const lines = (text) => text.replace(/\r\n?/g, '\n').replace(one.tagName === 'TEXTAREA' ? '' : /\n/g, '');
    if (one.type === 'range') return value.trim() === value && value !== '' && Number.isFinite(Number(value));
    if (one.type === 'color') return one.value === value.toLowerCase();
    if (isTyped(one)) return one.value === lines(value);
    return one.value !== '' || lines(value).trim() === '';
  };

  const put = (one, value) => {
    one.value = '';
    if (isTyped(one)) {
      if (value !== '') typed.push([one, value]);
      return true;
    }
    one.value = value;
    return took(one, value);
  };

  const enter = (name, given) => {
    const own = controls.filter((one) => one.name === name && isOpen(one));
    const boxes = own.filter((one) => one.type === 'checkbox');
    const isAlone = boxes.length === 1 && !own.some((one) => one.type === 'radio');
    let rest = [...given];
    const take = (is) => {
      const at = rest.findIndex(is);
      if (at >= 0) rest.splice(at, 1);
      return at >= 0;
    };
    for (const one of own) {
      if (one.type === 'checkbox') {
        const isWanted = take((value) => value === one.value || (isAlone && ['on', 'true'].includes(value)));
        if (one.checked !== isWanted) one.click();
        if (isAlone && rest.join() === 'false') rest = [];
      } else if (one.type === 'radio') {
        if (!own.some((each) => each.checked && each.matches('.taken')) && take((value) => value === one.value)) {
          one.classList.add('taken');
          one.click();
        }
      } else if (one.tagName === 'SELECT') {
        if (one.multiple) for (const option of one.options) option.selected = false;
        rest = rest.filter((value, at) => (at > 0 && !one.multiple) || !choose(one, value));
      } else if (rest.length > 0 && !put(one, rest.shift())) {
        return false;
      }
    }
    return own.length > 0 && rest.length === 0;
  };

  const names = {
    valueMissing: 'value_missing', typeMismatch: 'type_mismatch', badInput: 'bad_input',
    patternMismatch: 'pattern_mismatch', tooLong: 'too_long', tooShort: 'too_short',
    rangeUnderflow: 'range_underflow', rangeOverflow: 'range_overflow', stepMismatch: 'step_mismatch',
  };
  const faults = (one) => Object.keys(names).filter((name) => one.validity[name]).map((name) => `${one.name}:${names[name]}`);
  const buttons = controls.filter((one) => ['submit', 'image'].includes(one.type));
  const free = buttons.filter((one) => !one.matches(':disabled'));
  const button = free[pressed ?? 0];

  return {
    // sets values by field; returns the texts to type, or null if a control does not take its value
    enter: (values) => Object.entries(values).every(([name, given]) => enter(name, given)) ? typed.map(([, text]) => text) : null,
    // puts the cursor where this text belongs
    focus: (at) => { typed[at][0].focus(); typed[at][0].select(); },
    // presses the button; returns whether the controls took what was typed, what does not validate, and whether the browser
    // sends the form
    finish: () => {
      const taken = typed.every(([one, text]) => took(one, text));
      const invalid = controls.filter((one) => one.willValidate).flatMap(faults);
      const isOpen = taken && (button !== undefined || buttons.length === 0);
      if (isOpen) form.requestSubmit(button);
      const sent = isOpen && (form.noValidate || Boolean(button?.formNoValidate) || form.matches(':valid'));
      return { taken, invalid, sent };
    },
  };
})
