"""The words by which a text announces, denies, concludes or refuses an answer: the patterns of `verifier.answers.extract`.

None of them names a letter; those come from the options, see `verifier.answers.forms`. They run over texts that are plain
already. English is read in full; of other languages the words that announce an answer and those that deny it.
"""

import re

from verifier.answers.plain import folded

_ANSWER_CJK = "答案|正解|答え|回答|정답|답"
_ANSWER_ABROAD = folded(
    r"respuesta|réponse|antwort|risposta|resposta|ответ|відповідь|odpowiedź|odpověď|antwoord|svar"
    r"|cevap|yanıt|jawaban|đáp án|câu trả lời|الإجابة|الجواب|उत्तर|जवाब|คำตอบ|ตอบ"
)
_NO_ABROAD = folded(
    r"不|非|ではな|じゃな|\bno\b|\bn'|\bne\b|\bnon\b|\bnão\b|\bnicht\b|\bkeine?\b|\bне\b|\bnie\b|\bnen|\bniet\b|\bingen\b"
    r"|\bdeğil\b|\bbukan\b|\btidak\b|\bkhông\b|\bليس|नहीं|ไม่"
)
#: Looked at first, for most places of a text hold none of them.
_FIRST_ABROAD = f"(?=[{''.join(sorted({word[0] for word in f'{_ANSWER_CJK}|{_ANSWER_ABROAD}'.split('|')}))}])"
_ANSWER_ABROAD = rf"{_FIRST_ABROAD}(?:{_ANSWER_CJK}|(?<![^\W\d_])(?:{_ANSWER_ABROAD}))"
#: From a word for "answer" to the option, with no denial in between.
_IS_ABROAD = folded(
    rf"(?:(?!{_NO_ABROAD})[^.\n:]){{0,40}}?(?::|=|-+>|→|-\s|は|が|为|為|是|選|选|คือ|은|는"
    r"|\b(?:es|est|ist|is|è|é|jest|je|är|er|là|adalah|является|это|है|هو|هي)(?!\w))"
    r"[ ]*(?:\b(?-i:la|el|le|il|a|o|die|der|das|de)\b(?=[ ](?:\W?\w\b)))?"
)

_COPULA = (
    r"(?:\s+(?:choice|option|letter|key|here|therefore|thus|then|clearly|most likely|likely|probably))*\s*"
    r"(?:\b(?:is|was|are|be|becomes|remains|(?:would|should|must|will|could|might|may|has to|seems to|appears to) be)(?=n't|\b)"
    r"|:|=|-+>|→|-\s)"
)
_OF = r"(?:\s+(?:to|for|among|from|of|in|here|that|left|remaining)\b[^.\n:]{0,80}?)?"
_GOOD = r"(?:correct|right|best|final|true|appropriate|accurate|suitable|chosen|only|ideal|preferred|likely)"
_SO = (
    r"so|thus|hence|therefore|ergo|accordingly|consequently|in conclusion|finally|wait|actually|no|sorry|hmm|correction"
    r"|scratch that|on second thought|i mean|i meant|make that|rather"
)
#: An answer is about to be named.
ANNOUNCED = re.compile(
    # An option may follow, or a clause that names one;
    rf"(?P<full>(?<!wrong )(?<!incorrect )(?<!alternative )(?<!tempting )(?<!distractor )\banswers?\b{_OF}{_COPULA}"
    rf"|\b{_GOOD}\s+(?:\w+\s+)?(?:option|choice|selection|response)\b{_OF}{_COPULA}"
    rf"|\bmy\s+(?:\w+\s+)?(?:choice|pick|guess|vote|selection|verdict)\b{_OF}{_COPULA}"
    r"|[\"'](?:[a-z]{1,20}[_ ]){0,2}(?:answer|choice|option|prediction)(?:[_ ][a-z]{1,20}){0,2}[\"']\s*:)"
    # an option must follow at once: in other languages, after "choose", and where a sentence begins with "not A, …";
    rf"|(?P<abroad>{_ANSWER_ABROAD}{_IS_ABROAD})"
    r"|(?P<head>(?:^|(?<=[.!?:]\s))"
    r"(?=(?:(?:it|this|that)(?: is|'s) )?(?:not\s+(?:option |choice |answer )?[(\"']?\w{1,3}[)\"']?\s*[,;:.-]"
    r"|neither\s+(?:option |choice |answer )?[(\"']?\w{1,3}[)\"']?\s+nor\b))"
    r"|\b(?:choose|chose|select|pick|opt for|go with|going with|settle on)\b(?: answer| option| choice)?:?"
    r"|^[ *#_-]{0,6}final[*_]{0,2}[ ]?:)"
    # the letter of one must.
    rf"|(?P<letter>\banswer(?: choice| option)?(?=\s)|选择?|{_ANSWER_ABROAD}(?=\s)"
    r"|\bbut\s+(?:(?:now|then|really|actually|in fact)\s+)?(?:i\s+(?:now\s+)?(?:think|believe)\s+(?:that\s+)?)?"
    r"it(?:\s+is|'s)(?=\s)|\bit\s+(?:should|must)\s+(?:(?:really|actually|in fact)\s+)?be(?=\s)"
    # (a run of such words is one)
    rf"|(?:^|(?<=[\s,.;:(-]))(?:{_SO})\b[,:;.!-]*(?: (?:{_SO})\b[,:;.!-]*)*)",
    re.I | re.M,
)
#: What stands before an announcement that is none: "if the answer is B, then …".
UNREAL = re.compile(
    r"\b(?:if|whether|unless|suppose|assuming|were)\b[^.\n,;]{0,30}$|\b(?:if|suppose|assuming)\b[^.\n;]*\bthen\s+(?:\w+\s+){0,3}$"
    # What others think is not what the text says.
    r"|\b(?:one|some|someone|somebody|you|people|many|most|others|everyone|everybody|students?|friend)\s+"
    r"(?:(?:people|students|might|may|would|could|will|often|initially|first|easily)\s+){0,3}(?:say|think|believe|argue|claim|assume|guess)s?\s+"
    r"(?:that\s+)?(?:the\s+)?$",
    re.I,
)
#: What stands before a letter that is being ruled out: "this eliminates answer C".
ELIMINATED = re.compile(
    r"\b(?:eliminat\w*|rul\w+ out|exclud\w*|discard\w*|reject\w*|cross\w* out|not|(?:wrong|incorrect|mistake|unwise|error) to)"
    r"\b[^.\n;]{0,40}$|(?:n't|\bnever)\s+(?:\w+ly\s+)?$",
    re.I,
)
_SAYING = (
    r"(?:say|said|think|thought|believe|claim|agree|accept|suspect|feel|conclude|argue|expect|mean|see (?:how|why))"
)
_THAT = r"(?:that|if|whether)"
#: What stands before an announcement that is denied: "I don't think the answer is B", "a wrong answer is B".
DOUBTED = re.compile(
    rf"(?:(?:n't|\bnot|\bcannot|\bnever|\bhardly)[ ]+(?:\w+[ ]+)?{_SAYING}"
    rf"|\b(?:nobody|no one|no-one|none)[ ]+(?:(?:would|could|can|should|will)[ ]+)?(?:\w+ly[ ]+)?{_SAYING}s?"
    r"|(?<!no )(?<!without )(?<!without a )\bdoubt(?:s|ed|ful)?|\b(?:no way|not true|untrue)"
    rf"|\b(?:wrong|incorrect|false|mistaken|mistake|misconception|myth)(?:[ ]+to[ ]+{_SAYING})?"
    rf"|\brefuse[ ]+to[ ]+{_SAYING})"
    rf"[ ]+(?:{_THAT}[ ]+)?(?:the[ ]+)?(?:{_GOOD}[ ]+)?$|\bunder no circumstances\b[^.\n;:,]{{0,30}}$",
    re.I,
)
#: What is said after an announcement that is taken back: ". This is incorrect", ", but they are wrong", ". Wait, no.".
RETRACTED = re.compile(
    r"[\"')\]]*\s*[.,;:!-]*\s*(?:\(\s*)?(?:(?:but|and|yet|though|although|however|no|wait|hmm+|actually|oh|sorry|on reflection"
    r"|on second thought)[,.!-]*\s+){0,3}"
    r"(?:(?:this|that|which|it|they|these)(?:'s|\s+(?:(?:answer|option|choice|claim)\s+)?"
    r"(?:(?:i|we)\s+(?:(?:now|can|do)\s+){0,2}(?:see|realise|realize|know|think|believe|find)\s+)?"
    r"(?:is|are|was|were|would be|seems|isn't|aren't|wasn't|can't be|cannot be))\s+(?:\w+ly\s+)?"
    r"(?:incorrect|wrong|false|mistaken|untrue|not (?:right|correct|true|so|it)"
    r"|(?:(?<=n't )|(?<=n't be )|(?<=cannot be ))(?:right|correct|true))\b(?!\s+(?:to|that|if)\b)"
    r"|(?:scratch|ignore|strike|disregard|forget) (?:that|this|it|the above)\b|never mind\b|i take (?:that|it) back\b"
    r"|(?:(?:wait|hmm+|oh|actually|sorry)[,.!]*\s+no|no[,.!]*\s+wait|hold on"
    r"|let me (?:reconsider|start over|rethink))\b(?! need\b)"
    r"|(?:on reflection|on second thought|actually)[, ]+(?:(?:option|choice|answer)\s+)?[\"'(]?\w{1,3}[\"')]?"
    r"\s+(?:is|seems|looks|fits)\s+(?:better\b(?! known)|right|correct|best))",
    re.I,
)
#: What may stand between an announcement and an option.
SPACE = re.compile(r"[\s\"']*")
#: Words between an announcement and an option that change nothing.
FILLER = re.compile(
    r"(?:(?:the|that(?!'s)|this|option|choice|letter|number|answer|is|be|was|would|should|must|most|likely|clearly|probably|definitely"
    r"|certainly|therefore|thus|hence|simply|obviously|indeed|actually|still|either|both|between|correct|best|right|it's|that's|it"
    r"|now|going|to|one|labell?ed|marked|final|so|then|wait|no|sorry|hmm|i think|i believe|i guess|i say|i choose|i pick"
    r"|perhaps|maybe|possibly|conceivably|alternatively|even|also|else|if not|could be|might be|may be"
    r"|i go with|i'd say|i'd choose|i'll go with|we choose)\b|[:=>→,;.!…(\[-])[ ]*",
    re.I,
)
#: What follows is denied.
NOT = re.compile(
    r"(?:not|n't|neither|nor|never|other than|anything but|everything but|all but|except(?: for)?|far from|unlikely(?: to be)?"
    r"|cannot be|can't be|rather than|instead of"
    r"|не|nicht|não|non|pas|niet|nie|ikke|inte|değil|bukan|không(?: phải)?)(?!\w)\s*"
    r"|(?:不是|非|ไม่ใช่)\s*",
    re.I,
)
#: A list goes on.
JOIN = re.compile(
    r"[ ]*(?:[,/&+|、(]|\band(?:/or)?\b|\b(?:or|oder|und|et|ou|y|или|и)\b|\b(?:to|through|versus)\b|\bvs\b\.?"
    r"|和|或|と|か|또는|혹은)[ ]*"
    r"(?:\b(?:and|or)\b[ ]*)?",
    re.I,
)
#: The next of a list is denied as well: "not A or B".
JOINS_DENIED = re.compile(
    r"[ ]*(?:,[ ]*)?(?:\b(?:or|and|nor)\b|/|&)"
    r"|[ ]*,(?=(?:[ ]?[(\"']?\w{1,3}[)\"']?,){0,8}[ ]?[(\"']?\w{1,3}[)\"']?,?[ ](?:or|nor)\b)",
    re.I,
)
#: What was denied is over, and something else is put in its place.
TURN = re.compile(
    r"[ \n]*[,;.]?[ ]*\(?(?:but|rather|instead|it's|it is|the|so|sondern|sino|mais|mas|ma|а|но|而是)?\b[ ]*", re.I
)
#: Between letters of a list that decides nothing: "A. B. C."
LISTED = re.compile(r"(?:[\s.,;|/&+()\[\]\"'-]|\b(?:and|or)\b)*", re.I)
#: Between letters with their texts in such a list; over a line or a full stop it would be what the options say.
LISTED_WITH_TEXTS = re.compile(r"(?:[ ,;|/&+()\[\]\"'-]|\b(?:and|or)\b)*", re.I)
LINE_ENDS = re.compile(r"[.)\]}\"'! ]*(?:$|\n)")
#: Before a second option that is held open beside the first: "B, or perhaps A", "B. It could also be A", "B if …, else A".
HEDGED = re.compile(
    r"[\"')\]]*\s*[.;,(-]?\s*(?:(?:but|though|although|however|or|and|yet),?\s+){0,2}(?:(?:it|this|that|the answer)\s+)?"
    r"(?:(?:could|may|might|can)\s+(?:(?:also|well|equally|just as|even)\s+){0,3}be|maybe|perhaps|possibly|or|alternatively"
    r"|(?:if|unless|when|provided|assuming|for|in)\b[^.\n]{1,120}?\b(?:otherwise|else|but if not|if not))"
    r",?\s+(?:(?:it is|it's|then|the answer is|also|even|the|option|choice)\s+){0,3}",
    re.I,
)
#: What is said of an option that is to count beside another: "A is also correct".
ALSO = re.compile(
    r"[\s\"')\].:]{0,6},?\s+(?:(?:is|are|seems|would be)\s+(?:also|equally)"
    r"|(?:could|may|might|can|would)\s+(?:also|equally)\s+be)"
    r"\s+(?:\w+ly\s+)?(?:(?:a|an|the)\s+)?(?:(?:correct|right|possible|acceptable|valid)\s+answer|correct|right|acceptable|valid|answer)\b",
    re.I,
)
#: What is said after an option that is denied.
WRONG = re.compile(
    r"[\"')\]]*\s*(?:[:-]\s*(?:this (?:option )?is\s+)?)?"
    r"(?:(?:is|are|was|were|would be|can be|seems|both|all|also|clearly|therefore|thus)\s+)*"
    r"(?:isn't|aren't|wasn't|(?<=is )not\b(?! only)|(?<=are )not\b(?! only)|incorrect|wrong|false|inappropriate|ruled out"
    r"|excluded|eliminated|unlikely|less likely|(?:では|じゃ)(?:な|あり)|不对|是错|가 아니"
    r"|(?:ist|es|est|è) (?:nicht|falsch|incorrecta|fausse|errata|sbagliata))",
    re.I,
)
#: What may follow a letter that "so" or "wait" announces: the sentence is over, and not about the option.
LETTER_ENDS = re.compile(
    r"[\"')\]]*\s*(?:$|[.;:!\n(。]|[^\x00-\x7f]|,(?! (?:which|who|that|if)\b)|(?:because|since|as|and|or)\b|- |[/&])"
    r"|[\"')\]]*\s+(?:(?:is|are)\s+(?:\w+\s+)?(?:wrong|incorrect|false|ruled out)|is (?:the )?(?:my )?(?:final )?answer)",
    re.I,
)
#: An announcement that there is none.
NO_ANSWER = re.compile(
    r"\s*(?:un(?:clear|known|certain)|indeterminate|undetermined|not (?:clear|known|given|provided|listed|among|available"
    r"|possible|in the|one of)|none of (?:the|these)|cannot|can't|impossible|n/?a\b|ambiguous)",
    re.I,
)
#: Words of somebody who cannot choose.
REFUSED = re.compile(
    r"\b(?:cannot|can't|can not|could not|couldn't|unable to|not able to|not possible to|impossible to|not sufficient to"
    r"|insufficient to)\s+(?:be\s+)?(?:\w+ly\s+)?(?:determine|answer|decide|choose|conclude|tell which|say which|select)",
    re.I,
)
#: A letter; looked for where no option was found, so it is the letter of none.
FOREIGN = re.compile(r"[(\[]\s*[A-Za-z]\s*[)\]]|[A-Z](?=\s*(?:$|\n|[.,;)](?!\w)))")
#: A conclusion that does not call itself an answer.
CONCLUDED = re.compile(
    r"\b(?:most (?:likely|appropriate|probable|accurate|consistent|suitable|commonly?|important)|best|correct|first-line"
    r"|next(?! (?!best\b)\w+est\b)|only)\b[^.\n]{0,160}?\b(?:is|was|would be|are|be)\b:?",
    re.I,
)
#: What is said after an option that is chosen.
PREDICATE = re.compile(
    r"[\s\"')\].:]{0,6},?\s+(?:is|must be|would be|seems|appears to be|remains|should be|being)"
    r"\s+(?:(?:\w+ly|thus|hence|the|my|most|our)\s+)*"
    r"(?:(?P<noun>answer|(?:correct|right|best|final|appropriate)\s+(?:answer|choice|option))|correct|right|best|true|likely)\b"
    # Not "B is likely wrong", "B is right-sided", "B is the only answer that is not correct".
    r"(?!-\w|\s+(?:(?:to be|that is|which is)\s+)?(?:\w+ly\s+)?(?:not|wrong|incorrect|false|untrue|mistaken|inappropriate|avoided"
    r"|excluded|eliminated|(?:a|the)\s+(?:\w+\s+)?(?:distractor|trap))\b|\s+but\s+(?:it\s+)?(?:does|is|do)(?:n't|\s+not)\b"
    r"|\s+to\s+(?:another|a different|the previous)\b)",
    re.I,
)
#: Where a sentence is over; abbreviations before a small letter are no end.
SENTENCE_END = re.compile(r"[.!?。][\"')\]]*(?=\s+[A-Z(\[\"'*]|\s*$|\n)|\n")
#: Where a clause begins to give reasons, in which other things are named than what is chosen.
REASONS = re.compile(r",?\s+\(?(?:because|since|as it|which(?![^.,]{0,30} (?:is|was|are|be)\b)|who(?:se)?)\b", re.I)
#: Where a letter by itself may be what the clause speaks of.
CLAUSE_START = re.compile(r"(?:^|(?<=[.!?,;:]\s)|(?<=\bthat\s)|(?<=\band\s)|(?<=\bbut\s))(?=\w)", re.M)
#: What stands before an option that is denied, or only thought possible.
DENIED = re.compile(
    r"\b(?:not|never|rather than|instead of|unlike|excludes?|rules? out|ruled out|less likely|unlikely|far from"
    r"|(?:anything|everything|all) but|no"
    r"|(?:could|may|might)(?: also)? be)\b[^,;]{0,30}$|n't\b[^,;]{0,30}$",
    re.I,
)
#: The mark of an item in a list.
ITEM = re.compile(r"[\s-]*([^\W_]{1,3})([.):])")
#: Words that make a sentence a conclusion.
MARKED = re.compile(
    r"\b(?:therefore|thus|hence|so|in conclusion|conclude|consequently|based on|suggests?|suggesting|indicates?|consistent with"
    r"|most|best|must|leaves|left with|called|known as|points? to|diagnosis)\b",
    re.I,
)
#: What may stand on a line before the option that it consists of.
ALONE_BEFORE = re.compile(r"[\s\"'-]*")
