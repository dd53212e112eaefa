"""The scripted model's sentences. `LONG` is exactly 2,000 words, as `str.split` counts them."""

from typing import Final

NOTHING_SAID: Final = "I am here, but I have not been asked anything yet."

HELLO: Final = "Hello! You wrote “{asked}”. "
TRY: Final = (
    "I am the scripted stand-in for a language model, so I answer by keywords. Try `calc 2*(3+4)` to see a tool at "
    "work, `long` for an answer worth stopping, `table` or `code` for formatting, or `slow`, `cut`, `hang` and "
    "`fail 429` to watch things go wrong politely."
)
AGAIN: Final = "This is our {nth} exchange; you began with “{first}”. "
TRY_SHORT: Final = (
    "I still answer by keywords only: `calc 2*(3+4)`, `long`, `table`, `code`, `slow`, `cut`, `hang` or `fail 429`. "
    "Ask me what you said first, and you will see that I follow the thread."
)
REMEMBER: Final = (
    "Yes, I remember. The first thing you said here was “{first}”. Messages from you before this one: {count}, and all "
    "of it is still in front of me."
)
REMEMBER_NOTHING: Final = (
    "This is the first message that I have from you here, so there is nothing earlier to remember. Write again in the "
    "same thread, and I will know how it began."
)
CALCULATED: Final = "The calculator says that {expression} = {result}. Shall we try something harder?"
TOOL_SAID: Final = "I asked the tool `{name}` for this. It answered: {result}"
NO_TOOL: Final = (
    "I would like to call the tool `{name}` for this, but it is not on offer here. Ask whoever runs this bot to "
    "allow it."
)
FILE_CONTENT: Final = "This is {name}, written by the scripted model.\nIt was asked for in a chat.\n"
BEFORE_CUT: Final = "Here is the beginning of an answer that will not reach its end, because in a moment the connection"
BEFORE_HANG: Final = "I will say this much, and then I fall silent without a word of explanation"

HELLO_ZH: Final = "你好！你写的是“{asked}”。"
TRY_ZH: Final = (
    "我是语言模型的脚本替身，只按关键词回答。可以试试 `calc 2*(3+4)` 看工具调用，`long` 看一段值得中途停止的长回答，"
    "`table` 或 `code` 看排版，也可以用 `slow`、`cut`、`hang`、`fail 429` 看看出错时会怎样。"
)
AGAIN_ZH: Final = "这是我们的第 {turn} 轮对话，你最开始说的是“{first}”。"
TRY_SHORT_ZH: Final = (
    "我还是只认关键词：`calc 2*(3+4)`、`long`、`table`、`code`、`slow`、`cut`、`hang` 或 `fail 429`。"
    "问我前面说过什么，就知道我记得这个话题。"
)
REMEMBER_ZH: Final = (
    "记得。你在这里说的第一句话是“{first}”。在这条消息之前你一共给我写过 {count} 条消息，内容都还在我面前。"
)
REMEMBER_NOTHING_ZH: Final = (
    "这是你在这里发给我的第一条消息，前面还没有内容可以回忆。在同一个话题里再写一条，我就知道它是怎样开始的。"
)
CALCULATED_ZH: Final = "计算器的结果是：{expression} = {result}。要不要再试一个更难的？"
TOOL_SAID_ZH: Final = "我为此调用了工具 `{name}`，它的回答是：{result}"
NO_TOOL_ZH: Final = "我想调用工具 `{name}` 来完成这件事，但这里没有提供它。请让管理这个机器人的人开放它。"

TABLE: Final = """\
Here is a small comparison of four ways to cross a river:

| way | people per hour | weather it bears | what it costs |
| --- | ---: | --- | --- |
| rowing boat | 24 | light wind | a boat and two good arms |
| cable ferry | 180 | most wind, no ice | a cable, a winch and a ferryman |
| footbridge | 2,400 | all | stone, time and a maintenance plan |
| tunnel | 3,600 | all | patience, pumps and a large loan |

The footbridge wins in most towns; the ferry is the one that people remember."""

CODE: Final = '''\
Here is a function that finds the longest run of equal values, with a test beside it:

```python
def longest_run(values: list[int]) -> int:
    """The length of the longest run of equal neighbours; 0 for an empty list."""
    best = current = 0
    previous: int | None = None
    for value in values:
        current = current + 1 if value == previous else 1
        best = max(best, current)
        previous = value
    return best


assert longest_run([]) == 0
assert longest_run([1, 1, 2, 2, 2, 3]) == 3
```

It reads the list once and keeps three numbers, so it needs no memory that grows with the input. Run it with \
`python -c "from runs import longest_run"` or paste it into a shell.'''

LONG: Final = """\
# A walk around the harbour

You asked for something long, so here is a walk around a small harbour, told by someone who has nothing to sell. It \
takes about an hour on foot and a little over a minute at this speed. Stop me whenever you have read enough; that is \
what the walk is for.

## 1. The breakwater

Start at the far end, where the breakwater meets the open sea. It was built from the rubble of a quarry that no \
longer exists, and if you look closely you can still see drill marks in some of the blocks. The engineers of the \
time expected it to settle by two feet in ten years. It settled by four in the first winter, and they spent the next \
three summers adding stone on top. Nobody has touched it since, which is the highest praise that a breakwater can \
earn.

Walk along the inner side when the wind is from the west. The waves strike the outer face, break, and send up a \
curtain of spray that hangs in the air for a moment before it falls. Children time their runs between two curtains. \
Adults pretend that they do not, and then run as well.

Three things are worth a look here:

- the tide gauge, an iron post with white numerals that were last painted by a man called Oskar;
- the ring bolts, worn thin on one side by a century of rope;
- the small bronze plate for a dog who waited, which is polished by many hands and explains nothing.

## 2. The lighthouse

At the bend stands the lighthouse, which is shorter than visitors expect. Height matters less than position, the \
last keeper used to say, and he had measured both. The lamp is automatic now. A sensor on the roof decides when it \
is dark, and once a year a technician arrives by van, opens the door with a key the length of a hand, and replaces a \
part that still works, because the schedule says so.

Inside there are eighty-eight steps. They were numbered in chalk by a school class, up one side and down the other, \
and the two counts disagree by one. The class returned the next spring to settle the matter. They found that the \
lowest step is counted by those who go up and ignored by those who come down, and they wrote a letter about it to \
the harbour office, where it hangs in a frame.

From the gallery you can see the whole walk laid out before you. The boats look like toys that somebody has sorted \
by colour and then lost interest in. On a clear evening the islands appear, seven of them, although the chart shows \
eight.

## 3. The fish market

Come down and follow the quay to the market hall. It opens at four in the morning and is over by nine, so at any \
decent hour you will find it empty, wet and smelling of lemons. The lemons are for the floor. A fishmonger \
discovered long ago that nothing else takes the smell away, and the town has bought its lemons from the same \
importer ever since.

In the corner is a slate with yesterday's prices. Beside each fish there is a small drawing for those who cannot \
read the language, and the drawings are better than they need to be. The woman who makes them studied in the \
capital, came home for one summer, and stayed for thirty years. Ask her about the squid and she will tell you that \
it is the only animal in the hall that looks back.

How a morning runs here, in four steps:

1. The boats land in the order in which they left, not in the order in which they return.
2. Each catch is weighed twice, by people who do not like each other.
3. The auctioneer names a price and lowers it until somebody nods.
4. Whoever nodded pays for the coffee.

## 4. The rope works

Behind the market stands a building that is three hundred yards long and barely twelve wide. Rope used to be made \
here by walking backwards, all day, with hemp around the waist. A good spinner covered eighteen miles between \
breakfast and supper and never left the room. When machines took over the twisting, the long room was kept, since a \
rope still has to be stretched somewhere, and no machine has yet been found that makes a room shorter.

Today one family runs it. They make bell ropes for churches, rigging for museums, and swings for anyone who asks. \
The youngest daughter keeps a list of every swing, with the tree it hangs from, and in autumn she travels around to \
look at the knots. She charges nothing for this. A rope that fails is bad for everybody, she says, but mostly for \
whoever is highest at the time.

## 5. The office with the clock

The harbour office has a clock that is seven minutes fast. It is not a mistake. Long ago the ferry left late so \
often that the harbour master moved the clock forward instead of arguing with the captain, and both of them were \
satisfied. The captain retired, the ferry became punctual, and the clock was left as it was. People who live here \
subtract without noticing. People who do not live here arrive seven minutes early, which has never hurt anyone.

Step inside and you will see the logbooks. They reach back without a gap for a hundred and forty years, one line for \
each ship: name, cargo, wind, and a remark. The remarks are why people come. Most say nothing at all. Some are a \
whole novel in five words, such as the famous one that reads: captain swears, cook does not.

## 6. The boatyard

Past the office the path turns to gravel, and you will hear the boatyard before you see it. Two old hulls stand on \
blocks, with their paint stripped and their planks marked in yellow chalk. The marks form a private language. A \
circle means that the wood is sound, a cross that it is not, and a wavy line that the person with the chalk would \
rather not say.

The owner has a rule that surprises his customers. He will not repair anything that he has not first seen sink, or \
at least leak properly, because the place where the water comes in is seldom the place where it seems to. So he \
floats each boat, sits inside with a lamp and a sandwich, and waits. It looks like idleness. It is the most careful \
work in the harbour, and it has saved more planks than any tool on his wall.

He also keeps a shelf of things that were found under floorboards. There are coins from nine countries, a set of \
teeth, letters that were never posted, and one very small shoe. Nobody has claimed the shoe. He dusts it every \
Saturday.

## 7. The bridge that turns

Between the inner basin and the canal lies a swing bridge. It turns on a single pin as thick as a barrel, and it is \
so evenly balanced that one person can move it by leaning on a bar. The bridge keeper lets visitors try. Everybody \
pushes too hard at first. Then they find that it moves by itself once it has been persuaded, and that the difficult \
part is to make it stop.

There is a table of signals on the wall of the hut. One long blast asks for the bridge, two short ones say thank \
you, and five mean that something has gone wrong and that it is too late to discuss it. In forty years the keeper \
has heard the five only once. It was a wedding party on a raft, and they had meant to say thank you.

What the keeper writes down each day:

- how often the bridge turned, and for whom;
- how long the road had to wait, to the half minute;
- what the people in the first car were doing when it opened again.

## 8. The garden of anchors

Beyond the bridge the town has collected the anchors that dredgers bring up. They lie in the grass like the bones of \
some large and stubborn animal. Each has a number, and a box by the gate holds cards that tell what is known. For \
most of them that is very little: the weight, the year of the find, the name of the crew that cursed it.

Number fourteen is different. Its card has been filled on both sides and continues on a second one. A retired \
teacher traced the maker by a stamp no larger than a thumbnail, found the ship in a list of losses, and then found \
the grandchildren of the mate, who had been told all their lives that he was lost in another ocean. They came to see \
it on a rainy day in March. They stood about for an hour, and one of them asked whether it could be moved out of the \
wind.

It could, and it was. That is why number fourteen lies behind the hedge, out of order, and why nobody has ever put \
it back.

## 9. The sailmaker's loft

Climb the outside stair of the yellow house and knock. The sailmaker is deaf in one ear and will wave you in if you \
stand on the proper side. Her floor is the size of a dance hall, and it was one until the band moved away. She works \
on her knees with a curved needle, and the cloth lies around her like snow that has been told where to fall.

Modern sails are cut by a laser in another town, and she does not complain of it. They are lighter, they are \
cheaper, and they last four seasons. Hers last twenty. She explains the difference without any pride: a machine sews \
where it is told to, and a person sews where the sail will be pulled. You only have to imagine the wind, she says, \
and then be slightly pessimistic.

Before you leave, look at the beam above the door. Every apprentice has cut a notch in it at the height of the first \
sail that came back for repair. The notches climb as the years pass. The topmost is hers, and it is still very low.

## 10. The bench at the end

The walk ends at a bench beneath two pines, just where the path would otherwise begin to climb. It faces the wrong \
way. Whoever placed it turned its back to the water, so that it looks at the town instead, at the crooked roofs and \
the washing and the windows that catch the last of the sun. There have been motions in the council to turn it \
around. They fail each time by one vote, and it is believed that it is never the same person who casts it.

Sit down for a while. Behind you the halyards tap against the masts in no order that anyone has been able to write \
down. In front of you somebody closes a shutter, somebody calls a cat, and the clock strikes seven minutes before it \
should. You have seen everything there is, and it did not take long.

Should you have another hour, take the upper path home. It passes the orchard, a wall of warm stone, and a gate that \
has no fence on either side. The gate is always shut, and everybody opens it, walks through, and closes it again. \
Nobody knows what it keeps in. It certainly kept something, for years.

If you stayed until here without pressing the button, thank you for your patience; the harbour is glad of it. If you \
did press it, you are not reading this, and that is as it should be. Tomorrow the market opens at four."""
